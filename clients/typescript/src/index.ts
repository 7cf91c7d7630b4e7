// Client of Sonorant: `const client = new SpeechClient("127.0.0.1:50051")`, then `client.speak(...)` or `client.synthesize(...)`.

import * as grpc from "@grpc/grpc-js";
import { DictionaryService, TextToSpeechService } from "./contract.js";
import type { Dictionary, GetUsageResponse, SpeakConfig, SynthesisConfig, SynthesizeResponse } from "./contract.js";
import { SpeechError } from "./errors.js";
import { Session } from "./session.js";

export type { AudioChunk, Dictionary, GetUsageResponse, Mark, SpeakConfig, SpeakRequest, SpeakResponse, SynthesisConfig, UtteranceDone } from "./contract.js";
export { SpeechError } from "./errors.js";
export { Session, type Event } from "./session.js";

type Kept = { dictionary: Dictionary | null };

const OPTIONS: grpc.ClientOptions = {
  "grpc.keepalive_time_ms": 6_000,
  "grpc.keepalive_timeout_ms": 2_000,
  "grpc.initial_reconnect_backoff_ms": 50,
  "grpc.max_reconnect_backoff_ms": 500,
};

export class SpeechClient {
  private readonly stub;
  private readonly kept;
  private readonly metadata = new grpc.Metadata();

  constructor(target = "127.0.0.1:50051", { apiKey = "", credentials = grpc.credentials.createInsecure() } = {}) {
    this.stub = new TextToSpeechService(target, credentials, OPTIONS);
    this.kept = new DictionaryService(target, credentials, OPTIONS);
    if (apiKey) this.metadata.set("authorization", `Bearer ${apiKey}`);
  }

  /** Open a session: text goes in while audio comes out. */
  speak(synthesis: SynthesisConfig = {}, config: Omit<SpeakConfig, "synthesis"> = {}): Session {
    return new Session(this.stub, this.metadata, { timestamps: "TIMESTAMP_MODE_WORD", ...config, synthesis });
  }

  /** Return a whole clip at once. */
  synthesize(text: string, config: SynthesisConfig = {}): Promise<SynthesizeResponse> {
    return answer((done) => this.stub.Synthesize({ text, config }, this.metadata, done));
  }

  /** What this client's API key has used, and what is left of its limits. */
  usage(): Promise<GetUsageResponse> {
    return answer((done) => this.stub.GetUsage({}, this.metadata, done));
  }

  /** All pronunciation dictionaries, each in its newest version and without its phrases. */
  async dictionaries(): Promise<Dictionary[]> {
    return (await answer<{ dictionaries: Dictionary[] }>((done) => this.kept.ListDictionaries({}, this.metadata, done))).dictionaries;
  }

  /** A version of a dictionary, with its phrases; 0 = the newest one. */
  async dictionary(dictionaryId: string, version = 0): Promise<Dictionary> {
    return (await answer<Kept>((done) => this.kept.GetDictionary({ dictionaryId, version }, this.metadata, done))).dictionary!;
  }

  /** Make a dictionary, or its next version, of phrases and what is said for them: `{ SQL: "sequel" }`. */
  async putDictionary(dictionaryId: string, pronunciations: Record<string, string>): Promise<Dictionary> {
    return (await answer<Kept>((done) => this.kept.PutDictionary({ dictionaryId, pronunciations }, this.metadata, done))).dictionary!;
  }

  /** Delete a dictionary with all its versions. */
  async deleteDictionary(dictionaryId: string): Promise<void> {
    await answer((done) => this.kept.DeleteDictionary({ dictionaryId }, this.metadata, done));
  }

  close(): void {
    this.stub.close();
    this.kept.close();
  }
}

/** The answer of a call, which `start` makes with what is to be called when it is over. */
function answer<T>(start: (done: (error: grpc.ServiceError | null, response?: T) => void) => unknown): Promise<T> {
  return new Promise((resolve, reject) => {
    start((error, response) => (error ? reject(SpeechError.of(error)) : resolve(response!)));
  });
}

// Client of Sonorant: `const client = new SpeechClient("127.0.0.1:50051")`, then `client.speak(...)` or `client.synthesize(...)`.

import * as grpc from "@grpc/grpc-js";
import { DictionaryService, TextToSpeechService } from "./contract.js";
import type { Dictionary, GetUsageResponse, SpeakConfig, SynthesisConfig, SynthesizeResponse } from "./contract.js";
import { SpeechError, waitMs } from "./errors.js";
import { Session, type Server } from "./session.js";

export type { AudioChunk, Dictionary, GetUsageResponse, Mark, SpeakConfig, SpeakRequest, SpeakResponse, SynthesisConfig, UtteranceDone } from "./contract.js";
export { SpeechError } from "./errors.js";
export { Turn, type Heard } from "./turn.js";
export { Session, type Event } from "./session.js";

const RETRY_MS = 250;

type Kept = { dictionary: Dictionary | null };

const OPTIONS: grpc.ClientOptions = {
  "grpc.keepalive_time_ms": 6_000,
  "grpc.keepalive_timeout_ms": 2_000,
  "grpc.initial_reconnect_backoff_ms": 50,
  "grpc.max_reconnect_backoff_ms": 500,
};

// The proxy that `http_proxy` names is for other machines: it would look for such a server on its own.
const THIS_MACHINE = /^(dns:(\/\/\/)?|ipv[46]:)?(localhost|127(\.\d+){3}|\[?::1\]?)(:\d+)?$/i;

export class SpeechClient {
  private readonly kept;
  private readonly server: Server;

  /**
   * A first call that reaches nobody fails at once; with `whenDown` it waits for a server, up to 20 seconds. While a server answers that it is
   * starting, calls wait for two minutes in any case.
   */
  constructor(target = "127.0.0.1:50051", { apiKey = "", credentials = grpc.credentials.createInsecure(), whenDown = false } = {}) {
    const metadata = new grpc.Metadata();
    if (apiKey) metadata.set("authorization", `Bearer ${apiKey}`);
    const options = THIS_MACHINE.test(target) ? { ...OPTIONS, "grpc.enable_http_proxy": 0 } : OPTIONS;
    this.server = { stub: new TextToSpeechService(target, credentials, options), metadata, target, whenDown };
    this.kept = new DictionaryService(target, credentials, options);
  }

  /** Open a session: text goes in while audio comes out. */
  speak(synthesis: SynthesisConfig = {}, config: Omit<SpeakConfig, "synthesis"> = {}): Session {
    return new Session(this.server, { timestamps: "TIMESTAMP_MODE_WORD", ...config, synthesis });
  }

  /** Return a whole clip at once. */
  synthesize(text: string, config: SynthesisConfig = {}): Promise<SynthesizeResponse> {
    return this.answer((done) => this.server.stub.Synthesize({ text, config }, this.server.metadata, done));
  }

  /** What this client's API key has used, and what is left of its limits. */
  usage(): Promise<GetUsageResponse> {
    return this.answer((done) => this.server.stub.GetUsage({}, this.server.metadata, done));
  }

  /** All pronunciation dictionaries, each in its newest version and without its phrases. */
  async dictionaries(): Promise<Dictionary[]> {
    return (await this.answer<{ dictionaries: Dictionary[] }>((done) => this.kept.ListDictionaries({}, this.server.metadata, done))).dictionaries;
  }

  /** A version of a dictionary, with its phrases; 0 = the newest one. */
  async dictionary(dictionaryId: string, version = 0): Promise<Dictionary> {
    return (await this.answer<Kept>((done) => this.kept.GetDictionary({ dictionaryId, version }, this.server.metadata, done))).dictionary!;
  }

  /** Make a dictionary, or its next version, of phrases and what is said for them: `{ SQL: "sequel" }`. */
  async putDictionary(dictionaryId: string, pronunciations: Record<string, string>): Promise<Dictionary> {
    return (await this.answer<Kept>((done) => this.kept.PutDictionary({ dictionaryId, pronunciations }, this.server.metadata, done))).dictionary!;
  }

  /** Delete a dictionary with all its versions. */
  async deleteDictionary(dictionaryId: string): Promise<void> {
    await this.answer((done) => this.kept.DeleteDictionary({ dictionaryId }, this.server.metadata, done));
  }

  close(): void {
    this.server.stub.close();
    this.kept.close();
  }

  /** The answer of a call, which `start` makes with what is to be called when it is over. */
  private async answer<T>(start: (done: (error: grpc.ServiceError | null, response?: T) => void) => unknown): Promise<T> {
    const beganAt = Date.now();
    while (true) {
      try {
        return await new Promise((resolve, reject) => start((error, response) => (error ? reject(error) : resolve(response!))));
      } catch (thrown) {
        const error = thrown as grpc.ServiceError;
        if (Date.now() - beganAt + RETRY_MS > waitMs(error, this.server.whenDown)) throw SpeechError.of(error, this.server.target);
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }
}

// Client of Sonorant: `const client = new SpeechClient("127.0.0.1:50051")`, then `client.speak(...)` or `client.synthesize(...)`.

import * as grpc from "@grpc/grpc-js";
import { TextToSpeechService } from "./contract.js";
import type { SpeakConfig, SynthesisConfig, SynthesizeResponse } from "./contract.js";
import { SpeechError } from "./errors.js";
import { Session } from "./session.js";

export type { AudioChunk, Mark, SpeakConfig, SpeakRequest, SpeakResponse, SynthesisConfig, UtteranceDone } from "./contract.js";
export { SpeechError } from "./errors.js";
export { Session, type Event } from "./session.js";

const OPTIONS: grpc.ClientOptions = {
  "grpc.keepalive_time_ms": 6_000,
  "grpc.keepalive_timeout_ms": 2_000,
  "grpc.initial_reconnect_backoff_ms": 50,
  "grpc.max_reconnect_backoff_ms": 500,
};

export class SpeechClient {
  private readonly stub;
  private readonly metadata = new grpc.Metadata();

  constructor(target = "127.0.0.1:50051", { apiKey = "", credentials = grpc.credentials.createInsecure() } = {}) {
    this.stub = new TextToSpeechService(target, credentials, OPTIONS);
    if (apiKey) this.metadata.set("authorization", `Bearer ${apiKey}`);
  }

  /** Open a session: text goes in while audio comes out. */
  speak(synthesis: SynthesisConfig = {}, config: Omit<SpeakConfig, "synthesis"> = {}): Session {
    return new Session(this.stub, this.metadata, { timestamps: "TIMESTAMP_MODE_WORD", ...config, synthesis });
  }

  /** Return a whole clip at once. */
  synthesize(text: string, config: SynthesisConfig = {}): Promise<SynthesizeResponse> {
    return new Promise((resolve, reject) => {
      this.stub.Synthesize({ text, config }, this.metadata, (error, response) =>
        error ? reject(SpeechError.of(error)) : resolve(response!),
      );
    });
  }

  close(): void {
    this.stub.close();
  }
}

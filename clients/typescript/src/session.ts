// One `Speak` session, which survives the loss of its connection and of its server.

import * as grpc from "@grpc/grpc-js";
import type { SpeakConfig, SpeakRequest, SpeakResponse, SynthesisConfig, TextToSpeechServiceClient } from "./contract.js";
import { isFull, isLost, isStarting, RECONNECT_MS, SpeechError, STARTING_MS, waitMs } from "./errors.js";
import { Journal } from "./journal.js";

const [FIRST_DELAY_MS, LONGEST_DELAY_MS] = [20, 500];

/** What a session says itself: it has lost its server, or continues on another one. */
export type Event =
  | SpeakResponse
  | { utteranceId: ""; payload: "connectionLost"; error: SpeechError | undefined }
  | { utteranceId: ""; payload: "resumed"; gapMs: number };

/** Where a session speaks: `whenDown` says whether its first call waits for a server while nobody answers. */
export interface Server { stub: TextToSpeechServiceClient; metadata: grpc.Metadata; target: string; whenDown: boolean }

type Call = ReturnType<TextToSpeechServiceClient["Speak"]>;

/** Send text and controls at any time; iterate over the events with `for await`. Leaving the loop cancels the call. */
export class Session implements AsyncIterable<Event> {
  private readonly journal: Journal;
  private readonly config: SpeakConfig;
  private readonly events: Event[] = [];
  private wake: () => void = () => {};
  private call: Call | undefined;
  private isConnected = false;
  private hasBegun = false; // a server has taken the session
  private resumable = true;
  private isOver = false;
  private error: Error | undefined;
  private toldLost = false; // `connectionLost` was told, and `resumed` was not since
  private lostAt: number | undefined; // since when no server has spoken for the session
  private giveUpAt = 0;

  constructor(private readonly server: Server, config: SpeakConfig) {
    this.config = { ...config, resumable: true };
    this.journal = new Journal(this.config);
    this.connect();
  }

  /** Append text to the utterance exactly as it is. `config`: for the utterance that this text opens alone. */
  sendText(text: string, utteranceId = "", config?: SpeakConfig): void {
    this.send({ utteranceId, text }, config);
  }

  /** Voice, language and so on of the utterances that are opened from now on. */
  configure(synthesis: SynthesisConfig, more: Omit<SpeakConfig, "synthesis"> = {}): void {
    this.journal.config = { ...this.config, ...more, synthesis };
  }

  flush(flushId = 0, utteranceId = "", pauseMs = 0): void {
    this.send({ utteranceId, flush: { flushId, pauseMs } });
  }

  revise(fromChar: number, text: string, utteranceId = ""): void {
    this.send({ utteranceId, revise: { fromChar, text } });
  }

  /** End the utterance's text; the next text opens another one. */
  end(utteranceId = ""): void {
    this.send({ utteranceId, end: {} });
  }

  /** Barge-in: nothing of the utterance follows but its `done`, at once. "*" cancels all. */
  cancel(utteranceId = "", playedMs?: number): void {
    this.send({ utteranceId, cancel: { playedMs } });
  }

  reportPlayback(playedMs: number, utteranceId = ""): void {
    this.send({ utteranceId, playback: { playedMs } });
  }

  /** Send no more messages at all: open utterances are spoken to their end, then the iteration ends. */
  finish(): void {
    this.journal.finished = true;
    if (this.isConnected) this.call?.end();
    this.endIfNothingIsLeft();
  }

  /** Leave the session, and cancel everything that is still spoken. */
  close(): void {
    this.isOver = true;
    this.call?.cancel();
    this.wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Event> {
    try {
      while (true) {
        const event = this.events.shift();
        if (event) yield event;
        else if (this.error) throw this.error;
        else if (this.isOver) return;
        else await new Promise<void>((resolve) => (this.wake = resolve));
      }
    } finally {
      this.close();
    }
  }

  private send(request: SpeakRequest, config?: SpeakConfig): void {
    if (this.error) throw this.error;
    if (this.isOver || this.journal.finished) throw new Error("the session is over: nothing more can be sent");
    const requests = this.journal.enter(request, config);
    if (this.isConnected) for (const each of requests) this.call!.write(each);
    else this.tell(...this.journal.dropCancelled()); // no server knows of the utterance, or can answer a cancel
  }

  private tell(...events: Event[]): void {
    this.events.push(...events);
    this.wake();
  }

  private connect(): void {
    const metadata = this.server.metadata.clone();
    if (this.hasBegun) metadata.set("sonorant-resuming", "1");
    const call = (this.call = this.server.stub.Speak(metadata));
    call.write({ config: this.config });
    call.on("data", (response: SpeakResponse) => this.call === call && this.take(response));
    call.on("error", (error: grpc.ServiceError) => this.call === call && this.lose(error));
    call.on("end", () => this.call === call && setImmediate(() => this.call === call && this.ended()));
  }

  private take(response: SpeakResponse): void {
    if (response.session) {
      this.resumable = response.session.resumable;
      this.isConnected = true;
      for (const request of this.journal.requestsToResend()) this.call!.write(request);
      if (this.journal.finished) this.call!.end();
      if (this.hasBegun) this.tell({ utteranceId: "", payload: "resumed", gapMs: Date.now() - this.lostAt! });
      else this.lostAt = undefined;
      this.hasBegun = true;
      this.toldLost = false;
      return;
    }
    const fresh = this.journal.take(response);
    if (response.audio?.data.length || (fresh && response.done)) this.lostAt = undefined;
    if (fresh) this.tell(fresh);
    if (response.done && this.journal.onlyWaits) this.lose(undefined);
  }

  private ended(): void {
    if (this.journal.serverGoesAway && this.journal.unfinished) this.lose(undefined);
    else if (!this.error) {
      this.isOver = true;
      this.wake();
    }
  }

  private lose(error: grpc.ServiceError | undefined): void {
    const call = this.call;
    this.call = undefined;
    call?.cancel();
    this.isConnected = false;
    if (this.isOver) return;
    if (this.lostAt === undefined) this.giveUpAt = (this.lostAt = Date.now()) + RECONNECT_MS;
    if (error && isStarting(error)) this.giveUpAt = Math.min(Date.now() + RECONNECT_MS, this.lostAt + STARTING_MS);
    if (error && !(this.hasBegun ? this.resumable && (isLost(error) || isFull(error)) : waitMs(error, this.server.whenDown))) return this.fail(error);
    if (this.hasBegun && !this.toldLost) {
      this.tell({ utteranceId: "", payload: "connectionLost", error: error && SpeechError.of(error, this.server.target) });
      this.toldLost = true;
    }
    this.tell(...this.journal.dropCancelled());
    if (this.endIfNothingIsLeft()) return;
    if (Date.now() > this.giveUpAt) return this.fail(error);
    const late = Date.now() - this.lostAt;
    const delay = Math.min(LONGEST_DELAY_MS, Math.max(FIRST_DELAY_MS, late / 2)) * (0.75 + Math.random() / 2);
    setTimeout(() => !this.isOver && this.connect(), delay);
  }

  private endIfNothingIsLeft(): boolean {
    if (this.lostAt === undefined || this.isConnected || !this.journal.finished || this.journal.unfinished) return false;
    this.isOver = true;
    this.wake();
    return true;
  }

  private fail(error: grpc.ServiceError | undefined): void {
    const { target } = this.server;
    this.error = error ? SpeechError.of(error, target) : new SpeechError(grpc.status.UNAVAILABLE, `no server at ${target} took the session in time after it was lost`);
    this.isOver = true;
    this.wake();
  }
}

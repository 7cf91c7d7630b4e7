// Keeps what a session must send again after the loss of its server, so that another one continues where that stopped.
// Pure. docs/other-languages.md says why each step is as it is; the Python client's journal is the same.

import type { AudioChunk, Mark, SpeakConfig, SpeakRequest, SpeakResponse, SynthesisConfig } from "./contract.js";

const MS_PER_CHAR = 61; // of English speech, to guess what was heard of a text without marks
const FAILED = "FINISH_REASON_FAILED";
const UNAVAILABLE = 14;

type WordEnd = Pick<Mark, "endMs" | "textEnd">;

/** The end of the last word that was over after `playedMs` of audio, in code points of the utterance's text. */
export function heardChars(marks: readonly WordEnd[], playedMs: number): number {
  return Math.max(0, ...marks.filter(({ endMs }) => endMs <= playedMs).map(({ textEnd }) => textEnd));
}

interface Segment { codes: Buffer; complete: boolean; draw: number; unsentSamples: number }

class Kept {
  requests: SpeakRequest[] = []; // text, flushes, end; revisions without an answer yet
  textEnded = false;
  over = false; // before its text has ended: the rest is discarded
  heardMs?: number; // set by a cancel: the listener hears no more of it
  playedMs?: number;
  started?: NonNullable<SpeakResponse["started"]>;
  receipt?: AudioChunk["receipt"]; // the server vouches for the text that was heard
  receivedSamples = 0;
  receivedChunks = 0;
  segments = new Map<number, Segment>();
  committedChars: number[] = [];
  numFlushesDone = 0;
  wordEnds: WordEnd[] = []; // of the marks received
  flushesToSkip = 0;
  startedAgain = false;
  constructor(readonly config: SpeakConfig) {}

  get receivedMs(): number {
    return (this.receivedSamples * 1000) / (this.started?.audio?.sampleRateHz || 24000);
  }

  takeAudio(audio: AudioChunk): void {
    if (audio.data.length) {
      this.receivedSamples += audio.numSamples;
      this.receivedChunks += 1;
    }
    if (audio.receipt) this.receipt = audio.receipt;
    for (const part of audio.codes) {
      const before = this.segments.get(part.segment);
      const codes = Buffer.concat([(before?.codes ?? Buffer.alloc(0)).subarray(0, part.offset), part.codes]);
      const complete = part.complete || before?.complete === true;
      this.segments.set(part.segment, { codes, complete, draw: part.draw, unsentSamples: part.unsentSamples });
    }
  }

  takeMarks(marks: Mark[]): Mark[] {
    const last = this.wordEnds.at(-1) ?? { endMs: 0, textEnd: 0 };
    // Words of one phrase that is said otherwise than written have one place in the text.
    const fresh = marks.filter(
      ({ textEnd, startMs }) => textEnd > last.textEnd || (textEnd === last.textEnd && startMs >= last.endMs),
    );
    this.wordEnds.push(...fresh.map(({ endMs, textEnd }) => ({ endMs, textEnd })));
    return fresh;
  }

  applyRevised(fromChar: number, textChar: number): void {
    const place = this.requests.findIndex((request) => request.revise);
    if (place < 0) return;
    const text = [...(this.requests[place]?.revise?.text ?? "")].slice(textChar).join("");
    const kept = cutAt(this.requests.slice(0, place), fromChar);
    if (text) kept.push({ utteranceId: this.requests[place]?.utteranceId, text });
    this.requests.splice(0, place + 1, ...kept);
    this.committedChars = this.committedChars.filter((chars) => chars <= fromChar);
    this.wordEnds = this.wordEnds.filter(({ textEnd }) => textEnd <= fromChar);
  }

  get text(): string {
    return this.requests.map((request) => request.text ?? "").join("");
  }

  resume(): SpeakRequest["resume"] {
    const started = this.started!;
    const replay: SynthesisConfig = { ...started.replay };
    replay.voice ??= this.config.synthesis?.voice; // a recording or a description, which `replay` leaves out
    return {
      replay,
      checkpoint: started.checkpoint,
      receivedSamples: this.receivedSamples,
      receivedChunks: this.receivedChunks,
      segments: [...this.segments].map(([segment, kept]) => ({ segment, ...kept })),
      committedChars: this.committedChars,
      playedMs: this.playedMs,
      receipt: this.receipt,
      heardText: [...this.settledText].slice(0, this.receipt?.chars ?? 0).join(""),
      marks: this.wordEnds,
    };
  }

  /** The text before the first revision without an answer. */
  private get settledText(): string {
    const place = this.requests.findIndex((request) => request.revise);
    const settled = place < 0 ? this.requests : this.requests.slice(0, place);
    return settled.map((request) => request.text ?? "").join("");
  }

  /** The end of the last word that was over when the listener heard no more. Behind the last mark, as marks come later than their audio, all characters count alike. */
  get spokenChars(): number {
    const heardMs = Math.min(this.heardMs ?? 0, this.receivedMs);
    const last = this.wordEnds.at(-1) ?? { endMs: 0, textEnd: 0 };
    if (heardMs < last.endMs) return heardChars(this.wordEnds, heardMs);
    const ends = [...this.text.matchAll(/\S+/g)].map((word) => word.index + word[0].length);
    return Math.max(last.textEnd, ...ends.filter((end) => end <= last.textEnd + (heardMs - last.endMs) / MS_PER_CHAR));
  }
}

function cutAt(requests: SpeakRequest[], fromChar: number): SpeakRequest[] {
  const kept: SpeakRequest[] = [];
  let numChars = 0;
  for (const request of requests) {
    const chars = [...(request.text ?? "")];
    if (numChars === fromChar && chars.length) break;
    if (numChars + chars.length > fromChar) {
      kept.push({ ...request, text: chars.slice(0, fromChar - numChars).join("") });
      break;
    }
    kept.push(request);
    numChars += chars.length;
  }
  return kept;
}

/** A `done` for an utterance whose server is lost. */
export function cancelledDone(utteranceId: string, spokenChars: number, playedMs: number): SpeakResponse {
  const stats = { spokenChars, playedMs };
  return { utteranceId, payload: "done", done: { reason: "FINISH_REASON_CANCELLED", error: null, stats } } as SpeakResponse;
}

export class Journal {
  finished = false;
  serverGoesAway = false;
  private open = new Map<string, Kept>();
  private current = "";
  private numIds = 0;
  private sentConfig: SpeakConfig;
  private heldBack = new Set<string>(); // opened after the server's GoAway, or given up by it

  constructor(private readonly firstConfig: SpeakConfig, public config = firstConfig) {
    this.sentConfig = firstConfig;
  }

  get unfinished(): boolean {
    return [...this.open.values()].some((kept) => !kept.over);
  }

  /** Whether utterances wait for another server, while this one has nothing more to say. */
  get onlyWaits(): boolean {
    return this.heldBack.size > 0 && [...this.open].every(([id, kept]) => kept.over || this.heldBack.has(id));
  }

  /** Enter a request of the caller; return what to send now. */
  enter(request: SpeakRequest, config = this.config): SpeakRequest[] {
    if (request.cancel) return this.cancel(request);
    let id = request.utteranceId || this.current;
    if (request.text !== undefined) {
      id ||= `u${++this.numIds}`;
      if (!this.open.has(id)) {
        this.open.set(id, new Kept(config));
        this.current = id;
        if (this.serverGoesAway) this.heldBack.add(id);
      }
    }
    const kept = this.open.get(id);
    const named = { ...request, utteranceId: id };
    if (request.playback) {
      const playing = kept ?? this.open.values().next().value;
      if (playing) playing.playedMs = request.playback.playedMs;
      return [named];
    }
    if (request.end && id === this.current) this.current = "";
    if (!kept) return [named];
    if (request.end) kept.textEnded = true;
    if (kept.over) {
      if (request.end) this.open.delete(id);
      return [];
    }
    kept.requests.push(named);
    if (this.heldBack.has(id)) return [];
    return kept.requests.length === 1 ? [...this.configBefore(kept), named] : [named];
  }

  private cancel(request: SpeakRequest): SpeakRequest[] {
    const newest = [...this.open].filter(([, kept]) => !kept.over).at(-1)?.[0] ?? "";
    const id = request.utteranceId || this.current || newest;
    let playedMs = request.cancel?.playedMs;
    for (const each of id === "*" ? [...this.open.keys()] : [id]) {
      if (each === this.current) this.current = "";
      const kept = this.open.get(each);
      if (!kept || kept.heardMs !== undefined) continue;
      kept.textEnded = true;
      if (kept.over) this.open.delete(each);
      kept.heardMs = playedMs ?? kept.receivedMs;
      kept.playedMs = playedMs ?? kept.playedMs;
      playedMs = undefined; // with "*", it is about the first one, which is playing
    }
    return this.heldBack.has(id) ? [] : [{ ...request, utteranceId: id }];
  }

  private configBefore(kept: Kept): SpeakRequest[] {
    if (kept.config === this.sentConfig) return [];
    this.sentConfig = kept.config;
    return [{ config: kept.config }];
  }

  /** Enter a response; return it if it is for the caller. After a resume some responses come a second time. */
  take(response: SpeakResponse): SpeakResponse | undefined {
    if (response.goAway) this.serverGoesAway = true;
    const kept = this.open.get(response.utteranceId);
    if (!kept) return response.alive || response.committed || response.session ? undefined : response;
    const isHeard = kept.heardMs === undefined ? response : undefined; // nothing follows a cancel but `done`
    if (response.started) {
      const again = kept.startedAgain;
      kept.startedAgain = false;
      kept.started = response.started;
      return again ? undefined : isHeard;
    }
    if (response.audio) {
      kept.takeAudio(response.audio);
      return response.audio.data.length ? isHeard : undefined;
    }
    if (response.marks) {
      response.marks.marks = kept.takeMarks(response.marks.marks);
      return response.marks.marks.length ? isHeard : undefined;
    }
    if (response.flushDone) {
      if (kept.flushesToSkip-- > 0) return undefined;
      kept.flushesToSkip = 0;
      kept.numFlushesDone += 1;
      return isHeard;
    }
    if (response.revised) kept.applyRevised(response.revised.fromChar, response.revised.textChar);
    if (response.committed) {
      kept.committedChars.push(response.committed.chars);
      return undefined;
    }
    if (response.done) {
      const { reason, error } = response.done;
      if (reason === FAILED && error?.code === UNAVAILABLE && kept.heardMs === undefined) {
        this.heldBack.add(response.utteranceId); // another server can speak it
        return undefined;
      }
      if (kept.textEnded) this.open.delete(response.utteranceId);
      kept.over = true;
      kept.requests = [];
      kept.segments.clear();
    }
    return response;
  }

  /** Forget the cancelled utterances of a lost server, and return their `done`. */
  dropCancelled(): SpeakResponse[] {
    const dropped = [...this.open].filter(([, kept]) => kept.heardMs !== undefined);
    for (const [id] of dropped) this.open.delete(id);
    const missing = dropped.filter(([, kept]) => !kept.over);
    return missing.map(([id, kept]) => cancelledDone(id, kept.spokenChars, kept.playedMs ?? 0));
  }

  /** What the next server needs after the config, in order. */
  *requestsToResend(): Generator<SpeakRequest> {
    this.serverGoesAway = false;
    this.heldBack.clear();
    this.sentConfig = this.firstConfig;
    for (const [id, kept] of this.open) {
      if (kept.over) continue;
      yield* this.configBefore(kept);
      if (kept.started) {
        kept.startedAgain = true;
        kept.flushesToSkip = kept.numFlushesDone;
        yield { utteranceId: id, resume: kept.resume() };
      }
      yield* kept.requests;
    }
  }
}

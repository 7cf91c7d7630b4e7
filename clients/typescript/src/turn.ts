// One turn of a voice agent: text goes in token by token; audio and marks come out, and after a barge-in what was heard.

import type { Mark, SpeakConfig, SynthesisConfig } from "./contract.js";
import { SpeechError } from "./errors.js";
import { heardChars } from "./journal.js";
import type { Event, Session } from "./session.js";

const ID = "turn";

/** What the listener had heard of a turn when it was cut off, in whole words, and the rest of what had been sent. */
export interface Heard { text: string; unheard: string; playedMs: number }

/** Call `say` with text and iterate over the events; the iteration ends with the speech, or throws its SpeechError. */
export class Turn implements AsyncIterable<Event> {
  text = ""; // all that was passed to `say`
  private readonly session: Session;
  private readonly marks: Mark[] = [];
  private textEnded = false;
  private over = false; // no more events will come

  constructor(client: { speak(synthesis?: SynthesisConfig, config?: SpeakConfig): Session }, synthesis: SynthesisConfig = {}, { maxLeadMs }: { maxLeadMs?: number } = {}) {
    this.session = client.speak(synthesis, { maxLeadMs, timestamps: "TIMESTAMP_MODE_WORD" });
  }

  /** Append text exactly as it is. Text after `end`, or after the end of the turn, is dropped. */
  say(text: string): void {
    if (this.textEnded || this.over || !text) return;
    this.text += text;
    this.session.sendText(text, ID);
  }

  /** End the text. */
  end(): void {
    if (this.textEnded || this.over) return;
    this.textEnded = true;
    if (this.text) this.session.end(ID);
    else this.session.finish();
  }

  /** Barge-in: the server stops at its next step, and the iteration ends at once. */
  cutOff(playedMs: number): Heard {
    this.textEnded = true;
    if (!this.over && this.text) this.session.cancel(ID, playedMs);
    else this.session.close();
    return this.heard(playedMs);
  }

  /** The text up to the last word that was over after `playedMs` of audio. */
  heard(playedMs: number): Heard {
    const [text, end] = [[...this.text], heardChars(this.marks, playedMs)];
    return { text: text.slice(0, end).join(""), unheard: text.slice(end).join(""), playedMs };
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Event> {
    const events = this.session[Symbol.asyncIterator]();
    try {
      for (let next = await events.next(); !next.done; next = await events.next()) {
        const event = next.value;
        if (event.payload === "marks") this.marks.push(...event.marks!.marks);
        if (event.payload !== "done") {
          yield event;
          continue;
        }
        this.over = true;
        this.session.finish();
        if (event.done!.error) throw SpeechError.ofStatus(event.done!.error);
        return;
      }
    } finally {
      if (!this.over) this.session.close();
      this.over = true;
    }
  }
}

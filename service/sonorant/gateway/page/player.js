// Plays samples and tells how far the listener is. Positions count the samples that were pushed, without gaps.

export const RATE = 24000;

export class Player {
  pushed = 0;
  played = 0;
  onProgress = () => {};
  #context = null;
  #node = null;
  #starting = null;

  /** Call this from a gesture of the user, which browsers require before they play sound. */
  start() {
    this.#starting ??= this.#start();
    this.#context?.resume();
    return this.#starting;
  }

  async #start() {
    const context = new AudioContext({ sampleRate: RATE, latencyHint: "interactive" });
    this.#context = context;
    await context.audioWorklet.addModule("/player-worklet.js");
    this.#node = new AudioWorkletNode(context, "player", { numberOfInputs: 0, outputChannelCount: [1] });
    this.analyser = new AnalyserNode(context, { fftSize: 1024, smoothingTimeConstant: 0.2, minDecibels: -95, maxDecibels: -25 });
    this.#node.connect(this.analyser).connect(context.destination);
    this.#node.port.onmessage = ({ data }) => {
      this.played = data.played;
      if (data.cleared) this.pushed = data.played;
      this.onProgress();
    };
    await context.resume();
  }

  /** Play 16-bit samples in base64. */
  push(base64) {
    const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
    const samples = Float32Array.from(new Int16Array(bytes.buffer), (sample) => sample / 32768);
    this.pushed += samples.length;
    this.#node.port.postMessage(samples, [samples.buffer]);
  }

  /** Drop all samples that were not heard yet. */
  clear() {
    this.pushed = this.played;
    this.#node?.port.postMessage("clear");
  }

  /** Milliseconds of audio received and not heard yet. */
  get ahead() {
    return Math.max(0, ((this.pushed - this.played) * 1000) / RATE);
  }
}

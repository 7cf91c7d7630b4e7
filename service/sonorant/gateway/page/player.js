// Audio out: samples in, and where the listener is. Positions count samples that were handed in, gaps left out.

export const RATE = 24000;

export class Player {
  pushed = 0;
  played = 0;
  onProgress = () => {};
  #context = null;
  #node = null;
  #starting = null;

  /** To be called from a gesture of the user, which browsers want before they make a sound. */
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

  /** base64 of 16-bit samples. */
  push(base64) {
    const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
    const samples = Float32Array.from(new Int16Array(bytes.buffer), (sample) => sample / 32768);
    this.pushed += samples.length;
    this.#node.port.postMessage(samples, [samples.buffer]);
  }

  /** What was not heard yet is dropped. */
  clear() {
    this.pushed = this.played;
    this.#node?.port.postMessage("clear");
  }

  /** Milliseconds that are here and were not heard. */
  get ahead() {
    return Math.max(0, ((this.pushed - this.played) * 1000) / RATE);
  }
}

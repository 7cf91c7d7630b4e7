// Records the microphone into a WAV file, which the server accepts.

export class Recorder {
  onLevel = () => {};
  #pieces = [];
  #context = null;
  #stream = null;

  async start() {
    this.#pieces = [];
    const constraints = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    this.#stream = await navigator.mediaDevices.getUserMedia({ audio: constraints });
    this.#context = new AudioContext({ sampleRate: 24000 });
    await this.#context.audioWorklet.addModule("/recorder-worklet.js");
    const node = new AudioWorkletNode(this.#context, "recorder", { numberOfOutputs: 0 });
    node.port.onmessage = ({ data }) => {
      this.#pieces.push(data);
      this.onLevel(data.reduce((peak, sample) => Math.max(peak, Math.abs(sample)), 0));
    };
    this.#context.createMediaStreamSource(this.#stream).connect(node);
  }

  async stop() {
    this.#stream.getTracks().forEach((track) => track.stop());
    await this.#context.close();
    this.onLevel(0);
    return wav(this.#pieces, 24000);
  }
}

function wav(pieces, rate) {
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const view = new DataView(new ArrayBuffer(44 + 2 * length));
  const ascii = (at, text) => [...text].forEach((char, i) => view.setUint8(at + i, char.charCodeAt(0)));
  ascii(0, "RIFF");
  view.setUint32(4, 36 + 2 * length, true);
  ascii(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  ascii(36, "data");
  view.setUint32(40, 2 * length, true);
  let at = 44;
  for (const piece of pieces) {
    for (const sample of piece) {
      view.setInt16(at, Math.max(-32768, Math.min(32767, sample * 32768)), true);
      at += 2;
    }
  }
  return new Blob([view.buffer], { type: "audio/wav" });
}

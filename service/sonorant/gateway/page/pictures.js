// Draws the sound, the time to the first sound, and how much audio waits. Each canvas also has its numbers as text.

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The canvas's drawing context, fitted to its size on the screen; sizes are in CSS pixels. */
function fit(canvas) {
  const scale = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const resized = canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale);
  if (resized) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  return { context: canvas.getContext("2d", { alpha: true }), width: canvas.width, height: canvas.height, scale };
}

// Dark to light in steps that look even: ink, blue, teal, amber, white.
const STOPS = [[13, 23, 34], [20, 62, 98], [24, 128, 138], [240, 165, 60], [255, 248, 228]];
const PALETTE = Array.from({ length: 256 }, (_, level) => {
  const at = (level / 255) * (STOPS.length - 1);
  const [low, high] = [STOPS[Math.floor(at)], STOPS[Math.ceil(at)]];
  return low.map((value, i) => Math.round(value + (high[i] - value) * (at % 1)));
});

export class Spectrogram {
  #canvas;
  #bins = null;
  #x = 0;
  #strip = null;
  #still = matchMedia("(prefers-reduced-motion: reduce)");

  constructor(canvas) {
    this.#canvas = canvas;
  }

  /** Draw the next column. With reduced motion, write from left to right and start over, instead of scrolling. */
  draw(analyser) {
    const { context, width, height, scale } = fit(this.#canvas);
    this.#bins ??= new Uint8Array(analyser.frequencyBinCount);
    analyser.getByteFrequencyData(this.#bins);
    const step = Math.max(1, Math.round(2 * scale));
    if (!this.#strip || this.#strip.height !== height || this.#strip.width !== step) {
      this.#strip = new ImageData(step, height);
      this.#strip.data.fill(255);
    }
    const data = this.#strip.data;
    for (let y = 0; y < height; y++) {
      // Low tones get more room than on a linear scale.
      const share = 1 - y / height;
      const bin = Math.min(this.#bins.length - 1, Math.floor(share ** 1.6 * this.#bins.length));
      const [r, g, b] = PALETTE[this.#bins[bin]];
      for (let x = 0; x < step; x++) {
        const at = 4 * (y * step + x);
        data[at] = r;
        data[at + 1] = g;
        data[at + 2] = b;
      }
    }
    if (this.#still.matches) {
      context.putImageData(this.#strip, this.#x, 0);
      this.#x = (this.#x + step) % width;
    } else {
      context.drawImage(this.#canvas, -step, 0);
      context.putImageData(this.#strip, width - step, 0);
    }
  }

  describe(text) {
    this.#canvas.setAttribute("aria-label", `Spectrogram of the audio: ${text}`);
  }
}

/** Bars of the last times to the first sound. */
export class Latencies {
  #times = [];

  constructor(canvas, output) {
    this.canvas = canvas;
    this.output = output;
  }

  add(ms) {
    this.#times = [...this.#times, ms].slice(-16);
    this.output.textContent = `${Math.round(ms)} ms`;
    this.canvas.setAttribute("aria-label", `Latest times to the first sound: ${this.#times.map(Math.round).join(", ")} ms`);
    this.draw();
  }

  draw() {
    const { context, width, height, scale } = fit(this.canvas);
    context.clearRect(0, 0, width, height);
    const most = Math.max(200, ...this.#times);
    const room = width / 16;
    context.fillStyle = colour("--line");
    context.fillRect(0, height - scale, width, scale);
    this.#times.forEach((ms, i) => {
      const tall = Math.max(3 * scale, (ms / most) * (height - 4 * scale));
      context.globalAlpha = i === this.#times.length - 1 ? 1 : 0.55;
      context.fillStyle = colour("--bar");
      context.beginPath();
      context.roundRect(i * room + room * 0.15, height - tall, room * 0.7, tall, [3 * scale, 3 * scale, 0, 0]);
      context.fill();
    });
    context.globalAlpha = 1;
  }
}

/** How much audio was waiting, over the last seconds. */
export class Queue {
  #history = [];
  #said = 0;

  constructor(canvas, output) {
    this.canvas = canvas;
    this.output = output;
  }

  draw(ms) {
    this.#history = [...this.#history, ms].slice(-240);
    this.output.textContent = `${(ms / 1000).toFixed(1)} s`;
    if (performance.now() - this.#said > 1000) {
      this.#said = performance.now();
      this.canvas.setAttribute("aria-label", `Audio received and not heard yet: ${(ms / 1000).toFixed(1)} s`);
    }
    const { context, width, height, scale } = fit(this.canvas);
    context.clearRect(0, 0, width, height);
    const most = Math.max(2500, ...this.#history);
    const x = (i) => (i / 239) * width;
    const y = (value) => height - scale - (value / most) * (height - 4 * scale);
    context.fillStyle = colour("--line");
    context.fillRect(0, height - scale, width, scale);
    context.beginPath();
    context.moveTo(x(240 - this.#history.length), height - scale);
    this.#history.forEach((value, i) => context.lineTo(x(240 - this.#history.length + i), y(value)));
    context.lineTo(width, height - scale);
    context.fillStyle = colour("--area");
    context.globalAlpha = 0.85;
    context.fill();
    context.globalAlpha = 1;
  }
}

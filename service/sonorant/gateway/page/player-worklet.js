// Plays the samples that it gets, and reports how many of them were heard. Silence in between does not count.

const TELL_EVERY = 480; // samples

class Player extends AudioWorkletProcessor {
  constructor() {
    super();
    this.pieces = [];
    this.offset = 0; // position in the first piece
    this.played = 0;
    this.told = 0;
    this.port.onmessage = ({ data }) => {
      if (data === "clear") {
        this.pieces = [];
        this.offset = 0;
        this.port.postMessage({ played: this.played, cleared: true });
      } else {
        this.pieces.push(data);
      }
    };
  }

  process(_inputs, [[channel]]) {
    let at = 0;
    while (at < channel.length && this.pieces.length) {
      const piece = this.pieces[0];
      const count = Math.min(channel.length - at, piece.length - this.offset);
      channel.set(piece.subarray(this.offset, this.offset + count), at);
      at += count;
      this.offset += count;
      if (this.offset === piece.length) {
        this.pieces.shift();
        this.offset = 0;
      }
    }
    this.played += at;
    if (this.played - this.told >= TELL_EVERY || (at < channel.length && this.played > this.told)) {
      this.told = this.played;
      this.port.postMessage({ played: this.played });
    }
    return true;
  }
}

registerProcessor("player", Player);

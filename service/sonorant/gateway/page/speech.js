// The WebSocket /v1/audio/speech/stream: sends utterances whose text grows, and receives audio and word times.

export class Utterance {
  text = "";
  words = []; // {word, startMs, endMs, from, to}; from and to are positions in `text`
  firstTextAt = 0;
  firstAudioAt = 0;
  base = null; // position of its first sample in the player
  state = "open"; // then ended, cancelled or done
  spokenText = null; // after a cancel: the text that was heard
  #searched = 0;

  constructor(index, from) {
    this.index = index;
    this.from = from; // its beginning in the text of the page
  }

  addWord({ word, start_ms: startMs, end_ms: endMs }) {
    const from = this.text.indexOf(word, this.#searched);
    if (from < 0) return;
    this.#searched = from + word.length;
    this.words.push({ word, startMs, endMs, from, to: this.#searched });
  }
}

export class Speech {
  onAudio = () => {};
  onChange = () => {};
  onError = () => {};
  #socket = null;
  #next = 0; // index of the next utterance on this socket
  #utterances = new Map();

  /** `config`: fields of session.config. */
  begin(config, key, from) {
    const socket = this.#connect(key);
    const utterance = new Utterance(this.#next++, from);
    this.#utterances.set(utterance.index, utterance);
    this.#send(socket, {
      type: "session.config",
      response_format: "pcm",
      stream_audio: true,
      word_timestamps: true,
      early_word_timestamps: true,
      max_lead_ms: 2000,
      ...config,
    });
    return utterance;
  }

  say(utterance, text) {
    utterance.firstTextAt ||= performance.now();
    utterance.text += text;
    this.#send(this.#socket, { type: "input.text", text });
  }

  end(utterance) {
    if (utterance.state !== "open") return;
    utterance.state = "ended";
    this.#send(this.#socket, { type: "input.done" });
  }

  /** Cancel all utterances; `playedMs`: how much of the current one was heard. */
  cancel(playedMs) {
    for (const utterance of this.#utterances.values()) utterance.state = "cancelled";
    if (this.#utterances.size) this.#send(this.#socket, { type: "input.cancel", played_ms: Math.round(playedMs) });
  }

  get busy() {
    return this.#utterances.size > 0;
  }

  #connect(key) {
    if (this.#socket && this.#socket.key === key && this.#socket.readyState <= WebSocket.OPEN) return this.#socket;
    this.#socket?.close();
    const url = new URL("/v1/audio/speech/stream", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new WebSocket(url, key ? ["sonorant", `sonorant-key.${key}`] : ["sonorant"]);
    socket.key = key;
    socket.waiting = [];
    socket.onopen = () => socket.waiting.splice(0).forEach((data) => socket.send(data));
    socket.onmessage = ({ data }) => socket === this.#socket && this.#receive(JSON.parse(data));
    socket.onclose = ({ wasClean }) => {
      if (socket !== this.#socket) return;
      const lost = [...this.#utterances.values()];
      this.#socket = null;
      this.#next = 0;
      this.#utterances.clear();
      for (const utterance of lost) utterance.state = "done";
      if (!socket.refused && (lost.length || !wasClean)) this.onError("The connection ended. Is the server there, and the key right?");
      this.onChange();
    };
    this.#socket = socket;
    this.#next = 0;
    this.#utterances.clear();
    return socket;
  }

  #send(socket, message) {
    if (!socket) return;
    const data = JSON.stringify(message);
    if (socket.readyState === WebSocket.CONNECTING) socket.waiting.push(data);
    else if (socket.readyState === WebSocket.OPEN) socket.send(data);
  }

  #receive(message) {
    const utterance = this.#utterances.get(message.utterance_index);
    if (message.type === "audio.chunk" && utterance && utterance.state !== "cancelled") {
      utterance.firstAudioAt ||= performance.now();
      message.timestamps?.forEach((word) => utterance.addWord(word));
      this.onAudio(utterance, message.audio_b64);
    } else if (message.type === "session.done" && utterance) {
      this.end(utterance); // a failed utterance has not ended yet
      this.#utterances.delete(utterance.index);
      if (utterance.state === "cancelled") utterance.spokenText = message.spoken_text ?? "";
      else utterance.state = "done";
      this.onChange(utterance);
    } else if (message.type === "error") {
      for (const failed of this.#utterances.values()) this.end(failed);
      this.#socket.refused = true; // do not report errors that only follow from this one
      this.onError(message.message);
    }
  }
}

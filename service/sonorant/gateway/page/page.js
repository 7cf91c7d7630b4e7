// The page: speaks text while it is typed, highlights words as they are heard, and stops at once when asked to.

import { Player, RATE } from "/player.js";
import { Latencies, Queue, Spectrogram } from "/pictures.js";
import { Speech } from "/speech.js";
import { Who } from "/who.js";

const PAUSE_MS = 1000; // after this long without typing, the last word counts as complete

const byId = (id) => document.getElementById(id);
const text = byId("text");
const mirror = byId("mirror");
const player = new Player();
const speech = new Speech();
const who = new Who();
const spectrogram = new Spectrogram(byId("spectrogram"));
const latencies = new Latencies(byId("latencies"), byId("latency"));
const queue = new Queue(byId("queues"), byId("queue"));

let sent = ""; // the beginning of the text that was sent, or must not be spoken
let utterance = null; // the utterance that takes text
let said = []; // utterances since the text began, in order
let timer = 0;
let frame = 0;

function tell(id, message) {
  byId(id).textContent = message;
  byId(id).hidden = !message;
}

/** Speak this next part of the text. */
function say(until) {
  const more = text.value.slice(sent.length, until);
  sent = text.value.slice(0, until);
  if (!utterance && !more.trim()) return;
  if (!utterance) {
    const config = who.config();
    if (!config) return;
    tell("error", "");
    tell("heard", "");
    const queued = speech.busy;
    utterance = speech.begin(config, who.key, until - more.length);
    utterance.queued = queued; // it waits for another one, so its latency says nothing about the server
    said.push(utterance);
  }
  speech.say(utterance, more);
  animate();
}

function finish() {
  clearTimeout(timer);
  if (text.value.length > sent.length) say(text.value.length);
  if (utterance) speech.end(utterance);
  utterance = null;
}

function stop() {
  clearTimeout(timer);
  const heard = position();
  speech.cancel(heard.playedMs);
  for (const each of said) {
    if (each.heardUntil !== undefined) continue;
    const order = said.indexOf(each) - said.indexOf(heard.utterance);
    const last = each.words.findLast((word) => word.endMs <= heard.playedMs);
    each.heardUntil = order < 0 ? each.text.length : order > 0 ? 0 : last?.to ?? 0;
  }
  utterance = null;
  player.clear();
  tellHeard(said.map((each) => each.text.slice(0, each.heardUntil)));
  paint();
}

function tellHeard(parts) {
  const heard = parts.join("").trim();
  tell("heard", heard ? `Heard until the stop: “${heard}”` : "Nothing was heard yet.");
}

/** The utterance that is being heard, and how far. */
function position() {
  const sounding = said.filter((each) => each.base !== null && each.base <= player.played).at(-1) ?? null;
  return { utterance: sounding, playedMs: sounding ? ((player.played - sounding.base) * 1000) / RATE : 0 };
}

/** The text was changed in a part that was sent already: speak it again from there on. */
function changed(common) {
  stop();
  const begin = text.value.slice(0, common).search(/\S+$/);
  sent = text.value.slice(0, begin < 0 ? common : begin);
  said = said.filter((each) => each.from + each.text.length <= sent.length);
}

function typed() {
  player.start();
  const value = text.value;
  if (!value.startsWith(sent)) {
    let common = 0;
    while (common < sent.length && value[common] === sent[common]) common++;
    changed(common);
  }
  if (!value) {
    [sent, said] = ["", []];
    tell("heard", "");
  }
  clearTimeout(timer);
  if (byId("live").checked) {
    const words = value.slice(sent.length).search(/\s\S*$/);
    if (words >= 0) say(sent.length + words + 1);
    if (value.length > sent.length || utterance) timer = setTimeout(finish, PAUSE_MS);
  }
  paint();
}

function speakAll() {
  player.start();
  if (speech.busy || player.ahead) stop();
  [sent, said, utterance] = ["", [], null];
  finish();
  paint();
}

/** Show the typed text, with the state of each part. */
function paint() {
  const value = text.value;
  const heard = position();
  const speaking = speech.busy || player.ahead > 0;
  const parts = []; // [from, to, class]
  let at = 0;
  const add = (to, name) => {
    if (to > at) parts.push([at, to, name]);
    at = Math.max(at, to);
  };
  for (const each of said) {
    add(each.from, "");
    if (each.heardUntil !== undefined) {
      add(each.from + each.heardUntil, "heard");
      add(each.from + each.text.trimEnd().length, "unheard");
      continue;
    }
    for (const word of each.words) {
      const before = each === heard.utterance ? heard.playedMs : said.indexOf(each) < said.indexOf(heard.utterance) ? Infinity : -1;
      if (word.startMs > before) break;
      add(each.from + word.from, "heard");
      add(each.from + word.to, word.endMs > before && speaking ? "now" : "heard");
    }
    add(each.from + each.text.length, "");
  }
  add(sent.length, "");
  add(value.length, "unsent");
  mirror.replaceChildren(
    ...parts.map(([from, to, name]) => {
      const span = document.createElement("span");
      span.textContent = value.slice(from, to);
      span.className = name;
      return span;
    }),
  );
  mirror.scrollTop = text.scrollTop;
  document.body.dataset.state = speaking ? "speaking" : "ready";
  const state = speaking ? "Speaking" : "Ready";
  if (byId("state").textContent !== state) byId("state").textContent = state;
  byId("stop").disabled = !speaking;
}

/** Draw frames as long as something moves. */
function animate() {
  cancelAnimationFrame(frame);
  let silentFrames = 0;
  const step = () => {
    paint();
    queue.draw(player.ahead);
    if (player.analyser) spectrogram.draw(player.analyser);
    silentFrames = speech.busy || player.ahead ? 0 : silentFrames + 1;
    if (silentFrames < 30) frame = requestAnimationFrame(step);
    else spectrogram.describe("silence");
  };
  frame = requestAnimationFrame(step);
}

speech.onAudio = async (from, audio) => {
  await player.start();
  if (from.state === "cancelled") return;
  if (from.base === null) {
    from.base = player.pushed;
    if (!from.queued) latencies.add(from.firstAudioAt - from.firstTextAt);
    spectrogram.describe("speech");
  }
  player.push(audio);
};
speech.onChange = (over) => {
  if (over?.state === "cancelled") {
    const before = said.slice(0, said.indexOf(over)).map((each) => each.text.slice(0, each.heardUntil));
    if (over.spokenText) tellHeard([...before, over.spokenText]); // the server's own estimate
  }
  paint();
};
speech.onError = (message) => {
  utterance = null;
  tell("error", message);
};
who.onError = (message) => tell("error", message);
who.onSay = (message) => tell("heard", message);

text.addEventListener("input", typed);
text.addEventListener("scroll", () => (mirror.scrollTop = text.scrollTop));
byId("speak").addEventListener("click", speakAll);
byId("stop").addEventListener("click", stop);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !byId("stop").disabled) stop();
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) speakAll();
});
addEventListener("resize", () => latencies.draw());

// For tests and for the browser's console.
globalThis.sonorant = { player, speech, get said() { return said; } };

paint();
latencies.draw();
queue.draw(0);
who.list();

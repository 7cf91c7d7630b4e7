// Lets the user choose who speaks: a voice of the server, a clone, or a description; makes session.config from it.

import { Recorder } from "/recorder.js";

const byId = (id) => document.getElementById(id);

export class Who {
  onError = () => {};
  onSay = () => {}; // called with a message about a success
  #sample = null; // Blob
  #sampleUrl = "";

  constructor() {
    this.#tabs();
    this.#recording();
    byId("file").addEventListener("change", ({ target }) => target.files[0] && this.#take(target.files[0]));
    byId("keep").addEventListener("click", () => this.#keep());
    byId("key").addEventListener("change", () => this.list());
    byId("voices").addEventListener("change", () => this.#showPreview());
    byId("seed").value = this.#newSeed();
  }

  get key() {
    return byId("key").value.trim();
  }

  get task() {
    return document.querySelector('[role="tab"][aria-selected="true"]').id.replace("tab-", "");
  }

  /** The fields of session.config, or null after an error message if something is missing. */
  config() {
    if (byId("reseed").checked) byId("seed").value = this.#newSeed();
    const config = { seed: Number(byId("seed").value) || 0 };
    if (this.task === "design") {
      const instructions = byId("design").value.trim();
      if (!instructions) return this.#missing("design", "Describe the voice first.");
      return { ...config, task_type: "VoiceDesign", instructions };
    }
    if (this.task === "clone") {
      if (!this.#sampleUrl) return this.#missing("record", "Record a voice or choose a file first.");
      const transcript = byId("transcript").value.trim();
      return { ...config, task_type: "Base", ref_audio: this.#sampleUrl, ...(transcript && { ref_text: transcript }) };
    }
    const style = byId("style").value.trim();
    const voice = document.querySelector('input[name="voice"]:checked')?.value ?? "default";
    return { ...config, voice, ...(style && { instructions: style }) };
  }

  async list(chosen = "") {
    const box = byId("voices");
    try {
      const { data } = await this.#fetch("/v1/audio/voices");
      const before = chosen || document.querySelector('input[name="voice"]:checked')?.value;
      box.replaceChildren(
        ...data.map((voice, i) => {
          const input = Object.assign(document.createElement("input"), { type: "radio", name: "voice", value: voice.id });
          input.checked = before ? before === voice.id : i === 0;
          const label = document.createElement("label");
          input.dataset.preview = voice.preview_text;
          label.append(input, voice.name || voice.id);
          return label;
        }),
      );
      this.#showPreview();
      if (!data.length) box.textContent = "This server has no voices: clone or design one.";
    } catch (error) {
      box.textContent = "The voices could not be loaded.";
      if (error.status === 503) setTimeout(() => this.list(chosen), 2000); // the server is starting
      else this.onError(error.message);
    }
  }

  #showPreview() {
    byId("preview").textContent = document.querySelector('input[name="voice"]:checked')?.dataset.preview ?? "";
  }

  #newSeed() {
    return crypto.getRandomValues(new Uint32Array(1))[0];
  }

  #missing(id, message) {
    this.onError(message);
    byId(id).focus();
    return null;
  }

  async #fetch(path, options = {}) {
    const response = await fetch(path, { ...options, headers: this.key ? { Authorization: `Bearer ${this.key}` } : {} });
    const body = await response.json();
    if (!response.ok) {
      throw Object.assign(new Error(body.error?.message ?? response.statusText), { status: response.status });
    }
    return body;
  }

  #tabs() {
    const tabs = [...document.querySelectorAll('[role="tab"]')];
    const choose = (tab) => {
      for (const each of tabs) {
        const chosen = each === tab;
        each.setAttribute("aria-selected", chosen);
        each.tabIndex = chosen ? 0 : -1;
        byId(each.getAttribute("aria-controls")).hidden = !chosen;
      }
      tab.focus();
    };
    tabs.forEach((tab, i) => {
      tab.addEventListener("click", () => choose(tab));
      tab.addEventListener("keydown", ({ key }) => {
        const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[key];
        if (to !== undefined) choose(tabs.at(to % tabs.length));
      });
    });
  }

  #recording() {
    const button = byId("record");
    let recorder = null;
    button.addEventListener("click", async () => {
      try {
        if (recorder === null) {
          recorder = new Recorder();
          recorder.onLevel = (level) => (byId("level").value = level);
          await recorder.start();
        } else {
          const finished = recorder;
          recorder = null;
          await this.#take(await finished.stop());
        }
      } catch (error) {
        recorder = null;
        this.onError(`The microphone cannot be used: ${error.message}`);
      }
      button.setAttribute("aria-pressed", recorder !== null);
      button.textContent = recorder === null ? "Record" : "Stop recording";
    });
  }

  async #take(blob) {
    this.#sample = blob;
    this.#sampleUrl = await new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(blob);
    });
    const sample = byId("sample");
    if (sample.src) URL.revokeObjectURL(sample.src);
    sample.src = URL.createObjectURL(blob);
    sample.hidden = false;
  }

  async #keep() {
    if (!this.#sample) return this.#missing("record", "Record a voice or choose a file first.");
    const form = new FormData();
    form.append("name", byId("name").value.trim());
    form.append("consent", byId("consent").value.trim());
    form.append("preview_text", byId("preview-text").value.trim());
    if (byId("transcript").value.trim()) form.append("ref_text", byId("transcript").value.trim());
    form.append("audio_sample", this.#sample, "sample.wav");
    try {
      const voice = await this.#fetch("/v1/audio/voices", { method: "POST", body: form });
      await this.list(voice.id);
      byId("tab-voices").click();
      this.onSay(`The voice ${voice.name || voice.id} is stored.`);
    } catch (error) {
      this.onError(error.message);
    }
  }
}

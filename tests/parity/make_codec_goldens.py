"""Writes goldens/codec.npz and goldens/offline.npz: what the official package makes of the tiny checkpoints.

Run it as make_goldens.py, in the same environment. codec.npz holds the decoder, the speaker encoder and the codec
encoder by themselves, offline.npz whole utterances: greedy codes, audio, speaker embedding and reference codes of the
three official calls. All of it is computed on the CPU in float32. Of audio every STRIDE-th sample is kept.
"""

import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import numpy as np

GOLDENS = Path(__file__).parent / "goldens"
STRIDE = 41  # prime, so that it meets every phase of the upsampling
SIZES: dict[str, dict[str, Any]] = {
    "projected": {},  # as 1.7B: the predictor is narrower than the talker
    "plain": {
        "size_tag": "0b6",
        "predictor_hidden": 32,
        "codebooks": 3,
        "kv_heads": 4,
        "codec_window": 5,
        "codec_layers": 3,
        "codec_dim": 48,
        "decoder_dim": 64,
        "encoder_hidden": 48,
    },
}
DECODED_FRAMES = 40  # beyond the reach of window and layers of both sizes
RECORDINGS = [(24000, 1, 1.28), (24000, 1, 0.1), (16000, 1, 2.0), (44100, 2, 1.7), (48000, 1, 4.0)]  # Hz, channels, s

ENGLISH = "Hello world, the quick brown fox jumps over 12 lazy dogs... isn't it?"
CHINESE = "你好，世界！今天天气很好。"
SHORT = "x"


def _case(
    task: str, sizes: str, text: str, language: str, *, non_streaming: bool | None, **more: Any
) -> dict[str, Any]:
    return {"task": task, "sizes": sizes, "text": text, "language": language, "non_streaming": non_streaming, **more}


CASES = [
    _case("custom_voice", "projected", ENGLISH, "english", non_streaming=None, speaker="vivian"),
    _case("custom_voice", "projected", ENGLISH, "auto", non_streaming=False, speaker="eric", instruct="speak slowly"),
    _case("custom_voice", "projected", CHINESE, "Chinese", non_streaming=True, speaker="Eric"),
    _case("custom_voice", "plain", CHINESE, "german", non_streaming=False, speaker="ryan", instruct="with joy"),
    _case("custom_voice", "plain", SHORT, "auto", non_streaming=None, speaker="ryan", instruct="用开心的语气说"),
    _case("voice_design", "projected", ENGLISH, "english", non_streaming=None, instruct="a calm voice"),
    _case("voice_design", "plain", CHINESE, "auto", non_streaming=False, instruct=""),
    _case("base", "projected", ENGLISH, "english", non_streaming=None, recording=0, reference_text="the lazy dog"),
    _case("base", "projected", CHINESE, "chinese", non_streaming=True, recording=2, reference_text="你好"),
    _case("base", "projected", SHORT, "auto", non_streaming=False, recording=4, reference_text="hello"),
    _case("base", "plain", ENGLISH, "german", non_streaming=False, recording=3, reference_text="hello" + " hello" * 20),
    _case("base", "plain", CHINESE, "auto", non_streaming=None, recording=1, reference_text=""),
    _case("base", "projected", ENGLISH, "english", non_streaming=True, recording=3, reference_text=""),
]
MAX_FRAMES = 24


def write_recording(folder: Path, index: int) -> Path:
    """A wandering tone with some noise, as a 16 bit file."""
    import soundfile

    rate_hz, channels, seconds = RECORDINGS[index]
    t = np.arange(int(rate_hz * seconds)) / rate_hz
    tone = 0.3 * np.sin(1300 * t + 30 * np.sin(19 * t)) * (0.6 + 0.4 * np.sin(13 * t))
    noise = 0.05 * np.random.default_rng(index).standard_normal(len(t))
    samples = np.stack([tone + noise, np.roll(tone, 7)][:channels], axis=1)
    file = folder / f"recording-{index}.wav"
    soundfile.write(file, np.rint(samples * 32767).astype(np.int16), rate_hz)
    return file


def decoded_codes(codebooks: int, codebook_size: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, codebook_size, (DECODED_FRAMES, codebooks)).astype(np.int16)


def main() -> None:
    import torch
    import transformers  # noqa: F401  looks for torchaudio, so it goes before the stand-ins

    sys.path.insert(0, str(Path(__file__).parents[2]))
    for name in ("torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi"):
        sys.modules[name] = types.ModuleType(name)  # imported by the 25 Hz codec only
    torch.set_num_threads(1)
    GOLDENS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez_compressed(GOLDENS / "codec.npz", **_codec(folder))
        np.savez_compressed(GOLDENS / "offline.npz", **_offline(folder))


def _codec(folder: Path) -> dict[str, np.ndarray]:
    arrays = {}
    for sizes in SIZES:
        model = _official_model("base", sizes, folder)
        codec = model.model.speech_tokenizer
        codes = decoded_codes(codec.config.decoder_config.num_quantizers, codec.config.decoder_config.codebook_size)
        (samples,), _ = codec.decode([{"audio_codes": codes.astype(np.int64)}])
        arrays[f"{sizes}.samples"] = samples[::STRIDE]
        for index in range(len(RECORDINGS)):
            (prompt,) = model.create_voice_clone_prompt(str(write_recording(folder, index)), ref_text="unused")
            arrays[f"{sizes}.{index}.x_vector"] = prompt.ref_spk_embedding.numpy()
            arrays[f"{sizes}.{index}.codes"] = prompt.ref_code.numpy().astype(np.int16)
    return arrays


def _offline(folder: Path) -> dict[str, np.ndarray]:
    arrays = {}
    for index, case in enumerate(CASES):
        codes, samples = _official_speech(case, folder)
        arrays[f"{index}.codes"] = codes.astype(np.int16)
        arrays[f"{index}.samples"] = samples[::STRIDE]
    return arrays


def _official_speech(case: dict[str, Any], folder: Path) -> tuple[np.ndarray, np.ndarray]:
    model = _official_model(case["task"], case["sizes"], folder)
    captured = []
    generate = model.model.generate

    def capture(**kwargs: Any) -> Any:
        codes, hidden = generate(**kwargs)
        captured.extend(codes)
        return codes, hidden

    model.model.generate = capture
    options = {"do_sample": False, "subtalker_dosample": False, "max_new_tokens": MAX_FRAMES + 1}
    options["language"] = case["language"]
    if case["non_streaming"] is not None:
        options["non_streaming_mode"] = case["non_streaming"]
    if case["task"] == "custom_voice":
        speech, _ = model.generate_custom_voice(
            case["text"], speaker=case["speaker"], instruct=case.get("instruct"), **options
        )
    elif case["task"] == "voice_design":
        speech, _ = model.generate_voice_design(case["text"], instruct=case["instruct"], **options)
    else:
        speech, _ = model.generate_voice_clone(
            case["text"],
            ref_audio=str(write_recording(folder, case["recording"])),
            ref_text=case["reference_text"],
            x_vector_only_mode=not case["reference_text"],
            **options,
        )
    return captured[-1].numpy(), speech[0]


def _official_model(task: str, sizes: str, folder: Path) -> Any:
    import torch
    from qwen_tts import Qwen3TTSModel

    from tests.tiny_checkpoint import write_tiny_checkpoint

    checkpoint = write_tiny_checkpoint(folder / f"{task}-{sizes}", task, **SIZES[sizes])
    return Qwen3TTSModel.from_pretrained(str(checkpoint), dtype=torch.float32)


if __name__ == "__main__":
    main()

"""Writes goldens/talker.json: greedy codes of the official package on the tiny checkpoints of tests/tiny_checkpoint.

Runs in an environment of its own, from this folder:

    python -m venv parity-env
    parity-env/bin/pip install torch==2.13.0 qwen-tts==0.1.1
    parity-env/bin/python make_goldens.py

The codes are those of `Qwen3TTSForConditionalGeneration.generate` on the CPU in float32; prompts go through the
official processor and prompt code, so the goldens hold for tokenizer, prompt layout, talker and predictor together.
"""

import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
MAX_FRAMES = 40
TEXT = "Hello world, the quick brown fox jumps over the lazy dog."
SIZES: dict[str, dict[str, Any]] = {
    "projected": {},  # as 1.7B: the predictor is narrower than the talker
    "plain": {"size_tag": "0b6", "hidden": 32, "predictor_hidden": 32, "kv_heads": 4, "codebooks": 3, "layers": 3},
    "grouped": {"heads": 6, "kv_heads": 1, "head_dim": 16, "codebooks": 6, "hidden": 48, "text_hidden": 40},
}
# One utterance each: keyword arguments of `SynthesisParams` as far as JSON has them.
CASES: list[dict[str, Any]] = [
    {"task": "custom_voice", "sizes": sizes, "speaker": speaker, "language": language, "instruct": instruct}
    | {"non_streaming_mode": non_streaming}
    for sizes, speaker, language, instruct in [
        ("projected", "vivian", "english", ""),
        ("projected", "eric", "auto", "speak slowly"),
        ("projected", "Eric", "Chinese", ""),
        ("projected", "eric", "german", ""),
        ("projected", "ryan", "auto", ""),
        ("plain", "vivian", "english", "speak slowly"),
        ("grouped", "ryan", "german", "with joy"),
    ]
    for non_streaming in (False, True)
]
CASES += [
    {"task": "voice_design", "sizes": sizes, "language": language, "instruct": instruct, "non_streaming_mode": mode}
    for sizes, language, instruct, mode in [
        ("projected", "english", "a calm voice", False),
        ("grouped", "auto", "", True),
    ]
]
CASES += [
    {"task": "base", "sizes": sizes, "language": "english", "reference_frames": frames, "reference_text": text}
    | {"non_streaming_mode": non_streaming}
    for sizes, frames, text in [
        ("projected", 0, ""),
        ("projected", 6, "the lazy dog"),
        ("plain", 50, "hello"),
        ("grouped", 3, "a long text that goes on after the audio has ended"),
    ]
    for non_streaming in (False, True)
]


def voice(hidden: int, num_frames: int, codebooks: int, codebook_size: int) -> tuple[np.ndarray, np.ndarray]:
    """A made-up speaker embedding and reference codes."""
    rng = np.random.default_rng(num_frames)
    return rng.standard_normal(hidden).astype(np.float32), rng.integers(0, codebook_size, (num_frames, codebooks))


def main() -> None:
    import transformers  # noqa: F401  looks for torchaudio, so it goes before the stand-ins

    sys.path.insert(0, str(HERE.parents[1]))
    for name in ("torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi"):
        sys.modules[name] = types.ModuleType(name)  # imported by the 25 Hz codec only
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        goldens = [case | {"text": TEXT, "codes": _official_codes(case, Path(folder))} for case in CASES]
    lines = ",\n".join(json.dumps(golden, ensure_ascii=False) for golden in goldens)
    (HERE / "goldens" / "talker.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def _official_codes(case: dict[str, Any], folder: Path) -> list[list[int]]:
    from qwen_tts import Qwen3TTSModel, VoiceClonePromptItem

    from tests.tiny_checkpoint import write_tiny_checkpoint

    checkpoint = write_tiny_checkpoint(folder / case["task"] / case["sizes"], case["task"], **SIZES[case["sizes"]])
    model = Qwen3TTSModel.from_pretrained(str(checkpoint), dtype=torch.float32)
    captured: list[torch.Tensor] = []
    generate = model.model.generate

    def capture(**kwargs: Any) -> Any:
        codes, hidden = generate(**kwargs)
        captured.extend(codes)
        return codes, hidden

    model.model.generate = capture
    options = {"do_sample": False, "subtalker_dosample": False, "max_new_tokens": MAX_FRAMES + 1}
    options |= {"language": case["language"], "non_streaming_mode": case["non_streaming_mode"]}
    if case["task"] == "custom_voice":
        model.generate_custom_voice(TEXT, speaker=case["speaker"], instruct=case["instruct"], **options)
    elif case["task"] == "voice_design":
        model.generate_voice_design(TEXT, instruct=case["instruct"], **options)
    else:
        config = model.model.config.talker_config
        x_vector, codes = voice(
            config.hidden_size,
            case["reference_frames"],
            config.num_code_groups,
            config.code_predictor_config.vocab_size,
        )
        icl = case["reference_frames"] > 0
        prompt = VoiceClonePromptItem(
            ref_code=torch.from_numpy(codes) if icl else None,
            ref_spk_embedding=torch.from_numpy(x_vector),
            x_vector_only_mode=not icl,
            icl_mode=icl,
            ref_text=case["reference_text"],
        )
        model.generate_voice_clone(TEXT, voice_clone_prompt=[prompt], **options)
    return captured[-1].tolist()


if __name__ == "__main__":
    main()

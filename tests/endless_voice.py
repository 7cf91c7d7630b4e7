"""The built-in voice, made to miss its end."""

import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from sonorant.engine import BUILTIN_VOICE_DIR
from sonorant.engine.checkpoint.config import load_checkpoint


def write_endless_voice(folder: Path, eos_scale: float) -> Path:
    """Its scores of the end token are scaled. At 0.2 it misses all its ends, at 0.5 none."""
    shutil.copytree(BUILTIN_VOICE_DIR, folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["talker.codec_head.weight"][load_checkpoint(folder).talker.codec_eos_id] *= eos_scale
    save_file(tensors, file, {"format": "pt"})
    return folder

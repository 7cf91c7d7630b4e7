"""Where checkpoints are: those of the package by name, others by path."""

from pathlib import Path

from sonorant.engine.errors import CheckpointError

PRESETS_DIR = Path(__file__).parents[1] / "presets"
BUILTIN_VOICE_DIR = Path(__file__).parents[1] / "builtin_voice"


def resolve_model(name_or_path: str) -> Path:
    """Return the folder of a built-in checkpoint, of a preset (see `engine/sonorant/engine/presets`) or at a path.

    Raises CheckpointError if there is none.
    """
    files = (*BUILTIN_VOICE_DIR.parent.glob("builtin_*/config.json"), *PRESETS_DIR.glob("*/config.json"))
    named = {file.parent.name: file.parent for file in files}
    if name_or_path.lower() in named:
        return named[name_or_path.lower()]
    folder = Path(name_or_path).expanduser()
    if not folder.is_dir():
        names = ", ".join(sorted(named))
        raise CheckpointError(f"no checkpoint folder at {folder}; give a folder or one of the presets: {names}")
    return folder

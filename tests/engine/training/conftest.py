import pytest

from engine.checkpoint import BUILTIN_VOICE_DIR, Checkpoint, load_checkpoint


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load_checkpoint(BUILTIN_VOICE_DIR)

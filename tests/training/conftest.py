import pytest

from sonorant.engine.checkpoint.config import BUILTIN_VOICE_DIR, Checkpoint, load_checkpoint


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return load_checkpoint(BUILTIN_VOICE_DIR)

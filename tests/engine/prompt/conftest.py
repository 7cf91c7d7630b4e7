import pytest

from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR, resolve_model
from sonorant.engine.prompt.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """The published vocabulary of 151,643 tokens."""
    return Tokenizer.load(resolve_model("qwen3-tts-12hz-1.7b-customvoice"))


@pytest.fixture(scope="session")
def small_tokenizer() -> Tokenizer:
    """About a thousand tokens: words fall into many pieces."""
    return Tokenizer.load(BUILTIN_VOICE_DIR)

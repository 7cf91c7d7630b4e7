import pytest

from sonorant.client import synthesis_config


def test_an_empty_recording_is_never_the_default_voice() -> None:
    with pytest.raises(ValueError, match="reference is empty; give the bytes of a recording"):
        synthesis_config(reference=b"")
    assert not synthesis_config(reference=None).HasField("voice")

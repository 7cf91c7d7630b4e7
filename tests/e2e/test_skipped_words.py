"""Words that the model passed over, by its own report, are told: of a text that is too long for it, and of no other."""

import json
import shutil
from pathlib import Path

import pytest

from sonorant.client import SpeechClient, Warning, synthesis_config
from sonorant.engine import BUILTIN_VOICE_DIR
from sonorant.training.evaluation.sentences import everyday_sentences
from tests.e2e.server_process import ServerProcess

TOO_LONG = 1100  # characters in one go; the voice speaks 160 well


async def warned(client: SpeechClient, text: str, voice: str) -> list[Warning]:
    """Return what a stream and a clip tell, which is the same."""
    config = synthesis_config(voice=voice)
    told = [payload async for payload in client.stream(text, config, max_lead_ms=0) if isinstance(payload, Warning)]
    assert told == (await client.synthesize(text, config)).warnings
    return told


@pytest.mark.slow
async def test_everyday_sentences_have_none(server: ServerProcess) -> None:
    async with SpeechClient(server.address) as client:
        for number, text in enumerate(everyday_sentences()[:6]):
            assert await warned(client, text, ("linden", "wren")[number % 2]) == []


@pytest.mark.slow
async def test_words_are_named_if_a_text_is_not_cut(tmp_path: Path) -> None:
    model = tmp_path / "hasty"
    shutil.copytree(BUILTIN_VOICE_DIR, model)
    settings = model / "generation_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "max_segment_chars": 2 * TOO_LONG}))
    text = ""
    for sentence in everyday_sentences()[40:]:
        if len(text) + len(sentence) > TOO_LONG:
            break
        text += f"{sentence} "
    with ServerProcess(tmp_path / "log", "--model", str(model), "--num-slots", "4") as server:
        async with SpeechClient(server.address) as client:
            (warning,) = await warned(client, text, "linden")
    assert warning.code == "WORDS_SKIPPED"
    named, words = warning.message.rpartition(": ")[2].split(", "), text.split()
    assert len(named) > 3 and set(named[:-1]) <= set(words), "the last one may be cut"

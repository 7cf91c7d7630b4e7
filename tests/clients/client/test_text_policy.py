"""A text policy has an effect wherever the client library lets it be set: sentence by sentence, each sentence is a
prompt of its own; by token, which is the default, the whole text is one."""

import asyncio
from pathlib import Path

from sonorant.client import SpeechClient, UtteranceDone, text_policy, utterance_config
from sonorant.client.sync import SpeechClient as SyncClient
from sonorant.tts.v1.speak_pb2 import TextPolicy
from tests.clients.cli._support import sonorant
from tests.service.fake_engine import FakeEngine
from tests.service.harness import served

TEXT = "It is open. It closes at six. Come in."
SENTENCES = 3
SENTENCE, TOKEN = text_policy("sentence"), text_policy("token")


async def prompts(
    *, of_session: TextPolicy | None = None, configured: TextPolicy | None = None, of_one: TextPolicy | None = None
) -> list[int]:
    """The number of prompts of two utterances; `of_one` is set for the first of them alone."""
    engine = FakeEngine()
    async with (
        served(engine) as server,
        SpeechClient(server.address) as client,
        client.speak(text_policy=of_session, max_lead_ms=0) as session,
    ):
        if configured is not None:
            session.configure(text_policy=configured)
        counts = []
        for name in ("a", "b"):
            before = engine.num_opened
            config = utterance_config(text_policy=of_one) if name == "a" and of_one is not None else None
            await session.send_text(TEXT, name, config=config)
            await session.end(name)
            async for event in session:
                if event.utterance_id == name and isinstance(event.payload, UtteranceDone):
                    break
            counts.append(engine.num_opened - before)
        return counts


async def test_a_session_has_one() -> None:
    assert await prompts() == [1, 1]
    assert await prompts(of_session=SENTENCE) == [SENTENCES, SENTENCES]


async def test_it_changes_for_later_utterances() -> None:
    assert await prompts(configured=SENTENCE) == [SENTENCES, SENTENCES]
    assert await prompts(of_session=SENTENCE, configured=TOKEN) == [1, 1]


async def test_one_utterance_has_its_own() -> None:
    assert await prompts(of_one=SENTENCE) == [SENTENCES, 1]
    assert await prompts(of_session=SENTENCE, of_one=TOKEN) == [1, SENTENCES]


async def test_a_session_without_asyncio_has_one() -> None:
    engine = FakeEngine()

    def speak(address: str, policy: TextPolicy | None) -> None:
        with SyncClient(address) as client, client.speak(text_policy=policy, max_lead_ms=0) as session:
            session.send_text(TEXT)
            session.finish()
            for _ in session:
                pass

    async with served(engine) as server:
        await asyncio.to_thread(speak, server.address, None)
        assert engine.num_opened == 1
        await asyncio.to_thread(speak, server.address, SENTENCE)
        assert engine.num_opened == 1 + SENTENCES


async def test_the_command_sets_it_with_the_text_that_it_sends_at_once(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        for commit, count in (([], 1), (["--commit", "sentence"], SENTENCES)):
            before = engine.num_opened
            wav = str(tmp_path / "out.wav")
            status, _, stderr = await sonorant("say", TEXT, "--wav", wav, "--server", server.address, *commit)
            assert status == 0, stderr
            assert engine.num_opened - before == count

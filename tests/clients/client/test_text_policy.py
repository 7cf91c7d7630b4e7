"""A text policy has an effect wherever the client library lets it be set: sentence by sentence, each sentence is a
prompt of its own; by token, which is the default, the whole text is one."""

from sonorant.client import SpeechClient, UtteranceDone, text_policy, utterance_config
from sonorant.tts.v1.speak_pb2 import TextPolicy
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

"""Text, revisions, flushes, ends, cancels and losses in any order, against a model of what must be heard.

The client speaks to the real server through a proxy that cuts its connections. The engine's audio is a function of the
text, so everything that is lost, heard twice, or heard after a cancel shows.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sonorant.client import (
    ALL_UTTERANCES,
    AudioChunk,
    ConnectionLost,
    Event,
    FinishReason,
    Marks,
    Resumed,
    Revised,
    Session,
    SpeechClient,
    UtteranceDone,
    UtteranceStarted,
    synthesis_config,
)
from sonorant.client.speaking.texts import apply
from sonorant.tts.v1.speak_pb2 import Flush, Revise, SpeakRequest
from tests.cutting_proxy import CuttingProxy
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import eventually, served

IDS = ("a", "b", "c")
SEED = 7
WORDS = ("one", " two", ", three", " four five")
Step = tuple[str, str, int]  # what, of which utterance, and a number
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["text", "text", "flush", "revise", "end", "cancel", "cancel all", "cut", "down", "up", "hear"]
        ),
        st.sampled_from(IDS),
        st.integers(0, 7),
    ),
    max_size=16,
)

BEGUN: list[Step] = [("text", "a", 3), ("hear", "a", 2)]


@dataclass
class Model:
    """What was sent of one utterance, and what of it may be heard."""

    log: list[SpeakRequest] = field(default_factory=list)
    num_revised: int = 0  # revisions that were sent
    ended: bool = False
    cancelled_at: int | None = None  # number of events that had come before

    @property
    def is_open(self) -> bool:
        return bool(self.log) and not self.ended and self.cancelled_at is None

    def speech(self, answers: list[Revised]) -> bytes:
        """All its audio, with the server's answers to its revisions."""
        requests: list[SpeakRequest] = []
        for request in self.log:
            if not request.HasField("revise"):
                requests.append(request)
                continue
            answer = answers.pop(0)
            revise = Revise(from_char=answer.from_char, text=request.revise.text[answer.text_char :])
            requests = apply(requests, revise)
        runs = groupby(requests, key=lambda request: request.HasField("text"))
        segments = ["".join(request.text for request in run) for is_text, run in runs if is_text]
        return b"".join(spoken(segment, SEED) for segment in segments)


class Talk:
    """Takes steps, while another task reads."""

    def __init__(self, session: Session, proxy: CuttingProxy) -> None:
        self.session, self.proxy = session, proxy
        self.models = {utterance_id: Model() for utterance_id in IDS}
        self.events: list[Event] = []

    async def read(self) -> None:
        async for event in self.session:
            self.events.append(event)

    def of(self, utterance_id: str, kind: type) -> list[object]:
        return [e.payload for e in self.events if e.utterance_id == utterance_id and isinstance(e.payload, kind)]

    async def take(self, what: str, utterance_id: str, number: int) -> None:
        model = self.models[utterance_id]
        match what:
            case "text" if model.is_open or not model.log:
                text = WORDS[number % len(WORDS)]
                model.log.append(SpeakRequest(text=text))
                await self.session.send_text(text, utterance_id)
            case "flush" if model.is_open:
                model.log.append(SpeakRequest(flush=Flush(flush_id=number)))
                await self.session.flush(number, utterance_id)
            case "revise" if model.is_open and len(self.of(utterance_id, Revised)) == model.num_revised:
                model.num_revised += 1
                model.log.append(SpeakRequest(revise=Revise(from_char=number % 3, text="six seven")))
                await self.session.revise(number % 3, "six seven", utterance_id)
            case "end" if model.is_open:
                model.ended = True
                await self.session.end(utterance_id)
            case "cancel" if model.log and model.cancelled_at is None:
                await self.session.cancel(utterance_id, played_ms=100 * number)
                model.cancelled_at = len(self.events)
            case "cancel all":
                await self.session.cancel(ALL_UTTERANCES)
                for each in self.models.values():
                    if each.log and each.cancelled_at is None:
                        each.cancelled_at = len(self.events)
            case "cut" | "down":
                self.proxy.is_down = what == "down"
                self.proxy.cut()
            case "up":
                self.proxy.is_down = False
            case "hear":
                num_events = len(self.events)
                try:
                    async with asyncio.timeout(0.02 * (1 + number)):
                        await eventually(lambda: len(self.events) > num_events + number, True)
                except TimeoutError:
                    pass  # there is nothing to hear

    async def finish(self) -> None:
        self.proxy.is_down = False
        for utterance_id, model in self.models.items():
            if model.is_open:
                await self.take("end", utterance_id, 0)
        await self.session.finish()

    def check(self) -> None:
        for utterance_id, model in self.models.items():
            dones = self.of(utterance_id, UtteranceDone)
            assert len(dones) == bool(model.log), f"{utterance_id}: {dones}"
            if not model.log:
                continue
            (done,) = dones
            assert [e for e in self.events if e.utterance_id == utterance_id][-1].payload is done
            pcm = b"".join(chunk.data for chunk in self.of(utterance_id, AudioChunk))
            assert len(self.of(utterance_id, UtteranceStarted)) <= 1
            is_whole = done.reason == FinishReason.FINISH_REASON_COMPLETED
            if model.cancelled_at is None:
                assert is_whole, done.error
                assert pcm == model.speech(self.of(utterance_id, Revised))
                continue
            assert is_whole or done.reason == FinishReason.FINISH_REASON_CANCELLED, "it may have been over before"
            late = [e for e in self.events[model.cancelled_at :] if e.utterance_id == utterance_id]
            assert not [e for e in late if isinstance(e.payload, AudioChunk | Marks | UtteranceStarted)]
            if not model.num_revised:
                assert model.speech([]).startswith(pcm)
        pauses = [type(e.payload) for e in self.events if isinstance(e.payload, ConnectionLost | Resumed)]
        assert all(one != other for one, other in pairwise(pauses)), "they alternate"


@asynccontextmanager
async def talking() -> AsyncIterator[Talk]:
    async with (
        served(FakeEngine(frame_s=0.001)) as server,
        CuttingProxy(int(server.address.rpartition(":")[2])) as proxy,
        SpeechClient(f"127.0.0.1:{proxy.port}") as client,
        client.speak(synthesis_config(seed=SEED), max_lead_ms=0) as session,
    ):
        yield Talk(session, proxy)


@settings(max_examples=25)
@given(STEPS)
@example([*BEGUN, ("down", "a", 0), ("hear", "a", 0), ("cancel", "a", 2), ("text", "b", 0)])
@example([*BEGUN, ("end", "a", 0), ("down", "a", 0), ("hear", "a", 0), ("cancel", "a", 2), ("up", "a", 0)])
@example([*BEGUN, ("revise", "a", 0), ("down", "a", 0), ("text", "a", 1), ("flush", "a", 3), ("up", "a", 0)])
@example([*BEGUN, ("down", "a", 0), ("hear", "a", 0), ("revise", "a", 0), ("hear", "a", 3), ("text", "a", 1)])
def test_every_utterance_ends_once_and_is_heard_once_and_not_after_its_cancel(steps: list[Step]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), talking() as talk:
            reading = asyncio.create_task(talk.read())
            for step in steps:
                await talk.take(*step)
            await talk.finish()
            await reading
            talk.check()

    asyncio.run(run())

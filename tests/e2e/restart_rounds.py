"""Sessions that speak, and are cancelled, while their server is killed and started again; and what must be true after.

Each utterance is one of a few sentences with a known seed, so its audio and the times of its words are known from an
undisturbed run.
"""

import asyncio
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sonorant.client import (
    AudioChunk,
    Event,
    FinishReason,
    Marks,
    Session,
    SpeechClient,
    UtteranceDone,
    synthesis_config,
)
from sonorant.client.listening.playback_clock import PlaybackClock
from sonorant.tts.v1.synthesis_pb2 import Mark
from tests.e2e.server_process import ServerProcess
from tests.free_port import free_port
from tests.service.harness import assert_same_audio, eventually

SENTENCES = (
    "Words may come one by one, and none of them is lost.",
    "Not even when the server is.",
    "She looked out over the river and said nothing at all.",
)
TURNS = 3
NUM_SESSIONS = 4
LEAD_MS = 500
RATE_HZ = 24_000


@dataclass
class Undisturbed:
    pcm: bytes
    marks: list[Mark]

    def chars_heard(self, played_ms: int, num_words_off: int) -> int:
        """The end of the last word that is over by then, or of one so many words later."""
        num_words = sum(mark.end_ms <= played_ms for mark in self.marks) + num_words_off
        return self.marks[min(num_words, len(self.marks)) - 1].text_end if num_words > 0 else 0


@dataclass
class Turn:
    """One utterance: what was asked of it, and what came."""

    utterance_id: str
    sentence: int
    events: list[Event] = field(default_factory=list)
    num_events_at_cancel: int | None = None
    played_ms: int = 0  # when it was cancelled

    @property
    def is_done(self) -> bool:
        return bool(self.of(UtteranceDone))

    def of(self, kind: type) -> list[Any]:
        return [event.payload for event in self.events if isinstance(event.payload, kind)]

    @property
    def pcm(self) -> bytes:
        return b"".join(chunk.data for chunk in self.of(AudioChunk))

    def check(self, undisturbed: Undisturbed) -> None:
        (done,) = self.of(UtteranceDone)
        assert self.events[-1].payload is done
        pcm = self.pcm
        if done.reason == FinishReason.FINISH_REASON_COMPLETED:
            assert_same_audio(pcm, undisturbed.pcm)
            return
        assert done.reason == FinishReason.FINISH_REASON_CANCELLED, done.error.message
        assert self.num_events_at_cancel is not None
        late = self.events[self.num_events_at_cancel :]
        assert not [event for event in late if isinstance(event.payload, AudioChunk | Marks)], "heard after its cancel"
        if pcm:
            assert_same_audio(pcm, undisturbed.pcm[: len(pcm)])
        least, most = (undisturbed.chars_heard(self.played_ms, off) for off in (-1, 1))
        spoken_chars = done.stats.spoken_chars
        assert least <= spoken_chars <= most, f"{spoken_chars} of {self.played_ms} ms, not {least} to {most}"


async def undisturbed(client: SpeechClient) -> list[Undisturbed]:
    known = []
    for seed, sentence in enumerate(SENTENCES):
        whole = Turn("", seed)
        config = synthesis_config(seed=seed)
        async with client.speak(config, timestamps=True, max_lead_ms=0, text=sentence, end=True) as session:
            await session.finish()
            whole.events = [event async for event in session]
        known.append(Undisturbed(whole.pcm, [mark for marks in whole.of(Marks) for mark in marks.marks]))
    return known


async def talk(client: SpeechClient, rng: random.Random) -> list[Turn]:
    """Have a session of a few turns, word by word, some of them cut off."""
    sentence = rng.randrange(len(SENTENCES))
    async with client.speak(synthesis_config(seed=sentence), timestamps=True, max_lead_ms=LEAD_MS) as session:
        talk = _Talk(session, rng)
        reading = asyncio.create_task(talk.read())
        for number in range(TURNS):
            await talk.speak(Turn(f"t{number}", sentence))
        await session.finish()
        await reading
    return list(talk.turns.values())


class _Talk:
    def __init__(self, session: Session, rng: random.Random) -> None:
        self._session = session
        self._rng = rng
        self._clock = PlaybackClock()
        self.turns: dict[str, Turn] = {}

    async def read(self) -> None:
        async for event in self._session:
            if (turn := self.turns.get(event.utterance_id)) is None:
                continue
            turn.events.append(event)
            if isinstance(event.payload, AudioChunk):
                self._clock.add(turn.utterance_id, event.payload.num_samples / RATE_HZ)

    async def speak(self, turn: Turn) -> None:
        """Say the sentence, perhaps not all of it, and perhaps cut it off; return when it is done."""
        self.turns[turn.utterance_id] = turn
        is_cut_off = self._rng.random() < 0.5
        words = SENTENCES[turn.sentence].split(" ")
        num_words = self._rng.randrange(1, len(words)) if is_cut_off and self._rng.random() < 0.5 else len(words)
        for number in range(num_words):
            await self._session.send_text((" " if number else "") + words[number], turn.utterance_id)
            await asyncio.sleep(0.02)
        if num_words == len(words):
            await self._session.end(turn.utterance_id)
        if is_cut_off:
            await asyncio.sleep(self._rng.uniform(0, 2.5))
        if is_cut_off and not turn.is_done:
            turn.played_ms = self._clock.played_ms(turn.utterance_id)
            await self._session.cancel(turn.utterance_id, played_ms=turn.played_ms)
            turn.num_events_at_cancel = len(turn.events)
        await eventually(lambda: turn.is_done, True, timeout_s=120)


class RestartedServer:
    """A server on one port, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._listen = f"127.0.0.1:{free_port()}"
        self._process = self._start()

    @property
    def address(self) -> str:
        return self._listen

    async def restart(self) -> None:
        """Kill it and all its workers at once, as when a machine fails, and start it again."""
        await asyncio.to_thread(self._kill)
        self._process = await asyncio.to_thread(self._start)

    def stop(self) -> None:
        self._process.stop()

    def _start(self) -> ServerProcess:
        self._number += 1
        return ServerProcess(self._folder / f"log{self._number}", "--listen", self._listen)

    def _kill(self) -> None:
        self._process.strike(signal.SIGKILL)
        self._process.stop()


async def restart_round(client: SpeechClient, server: RestartedServer, known: list[Undisturbed], seed: int) -> None:
    """Let sessions talk, kill the server at some moment, and start it again. Raises AssertionError."""
    rng = random.Random(seed)
    async with asyncio.TaskGroup() as tasks:
        talks = [tasks.create_task(talk(client, random.Random(rng.random()))) for _ in range(NUM_SESSIONS)]
        await asyncio.sleep(rng.uniform(0.2, 5))
        await server.restart()
    for turn in [turn for task in talks for turn in task.result()]:
        turn.check(known[turn.sentence])

"""Closed-loop load: so many speakers, each of which begins its next utterance when the one before is over."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from clients.client import SpeechClient, synthesis_config
from clients.errors import SpeechError, from_status
from clients.playback import PlaybackMeter, PlaybackReport
from sonorant.tts.v1.audio_pb2 import AudioChunk
from sonorant.tts.v1.synthesis_pb2 import FinishReason, UtteranceDone

TEXTS = (
    "Sure, let me look that up for you.",
    "The next train to the airport leaves at half past nine from platform four.",
    "I am sorry, I did not get that. Could you say it again, please?",
    "Your order has been sent, and it should arrive on Thursday before noon.",
)


@dataclass(frozen=True, slots=True)
class Load:
    """What one cell of the benchmark asks for. Utterance i has seed i, so that every run speaks the same audio."""

    concurrency: int
    num_utterances: int
    voice: str = ""
    max_lead_ms: int = 0  # 0 = as fast as the server can
    num_frames: int = 0  # fixed length of every utterance in codec frames; 0 = the model decides


@dataclass(slots=True)
class Outcome:
    reports: list[PlaybackReport] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    wall_s: float = 0.0


async def run(client: SpeechClient, load: Load) -> Outcome:
    """Speaks `load.num_utterances` after one unmeasured utterance per speaker."""
    await _run(client, load, range(load.concurrency), Outcome())
    outcome = Outcome()
    began_s = time.monotonic()
    await _run(client, load, range(load.num_utterances), outcome)
    outcome.wall_s = time.monotonic() - began_s
    return outcome


async def _run(client: SpeechClient, load: Load, indices: Sequence[int], outcome: Outcome) -> None:
    todo = iter(indices)  # shared: each index is taken by one speaker
    async with asyncio.TaskGroup() as speakers:
        for _ in range(load.concurrency):
            speakers.create_task(_speaker(client, load, todo, outcome))


async def _speaker(client: SpeechClient, load: Load, todo: Iterator[int], outcome: Outcome) -> None:
    for index in todo:
        try:
            report = await _speak(client, load, index)
        except SpeechError as error:
            outcome.failures.append(str(error))
            continue
        if report.audio_s:
            outcome.reports.append(report)
        else:
            outcome.failures.append("no audio")


async def _speak(client: SpeechClient, load: Load, index: int) -> PlaybackReport:
    config = synthesis_config(voice=load.voice, seed=index)
    if load.num_frames:
        config.sampling.max_frames = load.num_frames
        config.sampling.ignore_eos = True
    async with client.speak(config, max_lead_ms=load.max_lead_ms) as session:
        meter = PlaybackMeter(session.started.audio.sample_rate_hz)
        meter.text_sent(time.monotonic())
        await session.send_text(TEXTS[index % len(TEXTS)])
        await session.finish()
        async for event in session:
            match event.payload:
                case AudioChunk() as audio:
                    meter.audio_arrived(time.monotonic(), audio.num_samples, audio.data)
                case UtteranceDone() as done if done.reason == FinishReason.FINISH_REASON_FAILED:
                    raise from_status(done.error)
    return meter.report()

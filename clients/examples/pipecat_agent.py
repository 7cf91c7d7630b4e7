"""A whole voice agent in Pipecat, offline: pocketsphinx hears a WAV file, a script answers, Sonorant speaks, and the
caller may interrupt.

    pip install 'sonorant[pipecat]' pocketsphinx
    python pipecat_agent.py caller.wav agent.wav --server 127.0.0.1:50051

Instead of the two files an agent of yours has a transport (WebRTC, a telephone), and instead of the script a model.
"""

import argparse
import asyncio
import time
import wave
from collections.abc import AsyncGenerator, Sequence

from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams
from pipecat.frames.frames import (
    EndWorkerFrame,
    Frame,
    InputAudioRawFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    OutputAudioRawFrame,
    StartFrame,
    TranscriptionFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.settings import STTSettings
from pipecat.services.stt_service import SegmentedSTTService
from pipecat.transports.base_input import BaseInputTransport
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.turns.user_start import VADUserTurnStartStrategy
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.utils.time import time_now_iso8601
from pipecat.workers.runner import WorkerRunner
from pocketsphinx import Decoder

from sonorant.pipecat import Heard, SonorantTTSService

HEARING_HZ, SPEAKING_HZ = 16_000, 24_000
ANSWERS = (
    "We expect good weather tomorrow morning, and some rain in the evening, when the wind comes from the west, so take "
    "an umbrella with you if you go out late at night, and do not leave your windows open.",
    "All right.",
)


class Caller(BaseInputTransport):
    """What the caller says: a mono WAV file of 16 kHz, in real time."""

    def __init__(self, path: str) -> None:
        super().__init__(TransportParams(audio_in_enabled=True, audio_in_sample_rate=HEARING_HZ))
        self._path = path

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)
        self.create_task(self._talk())

    async def _talk(self) -> None:
        step = HEARING_HZ // 50
        next_s = time.monotonic()
        with wave.open(self._path) as file:
            while samples := file.readframes(step):
                await self.push_audio_frame(InputAudioRawFrame(samples, HEARING_HZ, 1))
                next_s += step / HEARING_HZ
                await asyncio.sleep(max(0.0, next_s - time.monotonic()))
        await self.push_frame(EndWorkerFrame(), FrameDirection.UPSTREAM)


class Loudspeaker(BaseOutputTransport):
    """What the caller hears, in real time, into a WAV file."""

    def __init__(self, file: wave.Wave_write) -> None:
        super().__init__(TransportParams(audio_out_enabled=True, audio_out_sample_rate=SPEAKING_HZ))
        self._file = file
        self._next_s = 0.0

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        self._file.writeframes(frame.audio)
        self._next_s = max(self._next_s, time.monotonic()) + frame.num_frames / frame.sample_rate
        await asyncio.sleep(max(0.0, self._next_s - time.monotonic()))
        return True


class Recognizer(SegmentedSTTService):
    """pocketsphinx, on what the VAD takes for speech."""

    def __init__(self) -> None:
        super().__init__(
            sample_rate=HEARING_HZ, ttfs_p99_latency=0.5, settings=STTSettings(model="en-us", language="en")
        )
        self._decoder = Decoder(samprate=HEARING_HZ, loglevel="FATAL")

    @property
    def wants_wav_segments(self) -> bool:
        return False

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        text = await asyncio.to_thread(self._recognize, audio)
        if text:
            yield TranscriptionFrame(text, "caller", time_now_iso8601())

    def _recognize(self, audio: bytes) -> str:
        self._decoder.start_utt()
        self._decoder.process_raw(audio, full_utt=True)
        self._decoder.end_utt()
        hypothesis = self._decoder.hyp()
        return hypothesis.hypstr if hypothesis else ""


class Script(FrameProcessor):
    """In place of a language model: the next answer, word by word, as a model makes it."""

    def __init__(self, answers: Sequence[str]) -> None:
        super().__init__()
        self._answers = iter(answers)
        self._answering: asyncio.Task[None] | None = None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMContextFrame):
            await self._answer(next(self._answers, "Goodbye."))
        else:
            await self.push_frame(frame, direction)

    async def _answer(self, answer: str) -> None:
        await self.push_frame(LLMFullResponseStartFrame())
        for word in answer.split():
            await self.push_frame(LLMTextFrame(f"{word} "))
            await asyncio.sleep(0.05)
        await self.push_frame(LLMFullResponseEndFrame())


async def talk(
    caller_wav: str, agent_wav: str, server: str, answers: Sequence[str] = ANSWERS
) -> tuple[list[dict[str, str]], list[Heard]]:
    """The messages of the conversation, and what the caller had heard whenever he interrupted."""
    interruptions: list[Heard] = []
    speech = SonorantTTSService(target=server)

    @speech.event_handler("on_speech_interrupted")
    async def on_speech_interrupted(_: SonorantTTSService, __: str, heard: Heard) -> None:
        print(f"interrupted after {heard.played_ms} ms; heard: {heard.text!r}")
        interruptions.append(heard)

    context = LLMContext()
    users_turn = UserTurnStrategies(
        start=[VADUserTurnStartStrategy()], stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.3)]
    )
    vad = SileroVADAnalyzer(sample_rate=HEARING_HZ, params=VADParams(stop_secs=0.2))
    aggregators = LLMContextAggregatorPair(
        context, user_params=LLMUserAggregatorParams(user_turn_strategies=users_turn, vad_analyzer=vad)
    )
    with wave.open(agent_wav, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SPEAKING_HZ)
        pipeline = Pipeline(
            [
                Caller(caller_wav),
                Recognizer(),
                aggregators.user(),
                Script(answers),
                speech,
                Loudspeaker(file),
                aggregators.assistant(),
            ]
        )
        rates = PipelineParams(audio_in_sample_rate=HEARING_HZ, audio_out_sample_rate=SPEAKING_HZ)
        runner = WorkerRunner()
        await runner.add_workers(PipelineWorker(pipeline, params=rates, enable_rtvi=False))
        await runner.run()
    return [dict(message) for message in context.get_messages()], interruptions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("caller", help="WAV file, mono, 16 kHz: what the caller says")
    parser.add_argument("agent", help="WAV file to write: what the caller hears")
    parser.add_argument("--server", default="127.0.0.1:50051")
    arguments = parser.parse_args()
    messages, _ = asyncio.run(talk(arguments.caller, arguments.agent, arguments.server))
    for message in messages:
        print(f"{message['role']}: {message['content']}")


if __name__ == "__main__":
    main()

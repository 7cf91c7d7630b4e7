"""A whole voice agent in LiveKit Agents, offline: pocketsphinx hears a WAV file, a script answers, Sonorant speaks, and
the caller may interrupt.

    pip install 'sonorant[livekit]' pocketsphinx
    python livekit_agent.py caller.wav agent.wav --server 127.0.0.1:50051

Instead of the two files an agent of yours has a room, and instead of the script a model.
"""

import argparse
import asyncio
import time
import wave
from collections.abc import Sequence
from typing import Any

from livekit import rtc
from livekit.agents import Agent, AgentSession, inference, llm, stt, utils
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, APIConnectOptions
from livekit.agents.voice.io import AudioInput, AudioOutput, AudioOutputCapabilities
from livekit.agents.voice.transcription import TranscriptSynchronizer
from pocketsphinx import Decoder

from sonorant.livekit import TTS, Heard

HEARING_HZ = 16_000
ANSWERS = (
    "We expect good weather tomorrow morning, and some rain in the evening, when the wind comes from the west, so take "
    "an umbrella with you if you go out late at night, and do not leave your windows open.",
    "All right.",
)


class Caller(AudioInput):
    """What the caller says: a mono WAV file of 16 kHz, in real time. Afterwards `finished` is set."""

    def __init__(self, path: str) -> None:
        super().__init__(label="caller")
        with wave.open(path) as file:
            self._samples = file.readframes(file.getnframes())
        self._next_s = 0.0
        self.finished = asyncio.Event()

    async def __anext__(self) -> rtc.AudioFrame:
        step = HEARING_HZ // 50
        piece, self._samples = self._samples[: 2 * step], self._samples[2 * step :]
        if len(piece) < 2 * step:
            self.finished.set()
            raise StopAsyncIteration
        self._next_s = max(self._next_s, time.monotonic() - 0.5) + step / HEARING_HZ
        await asyncio.sleep(max(0.0, self._next_s - time.monotonic()))
        return rtc.AudioFrame(piece, HEARING_HZ, 1, step)


class Loudspeaker(AudioOutput):
    """What the caller hears, in real time, into a WAV file."""

    def __init__(self, file: wave.Wave_write, sample_rate: int) -> None:
        super().__init__(
            label="loudspeaker", capabilities=AudioOutputCapabilities(pause=False), sample_rate=sample_rate
        )
        self._file = file
        self._rate_hz = sample_rate
        self._start_s = 0.0
        self._audio = bytearray()  # of the segment that plays
        self._ending: asyncio.TimerHandle | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        if not self._audio:
            self._start_s = time.monotonic()
            self.on_playback_started(created_at=time.time())
        self._audio += frame.data.tobytes()

    def flush(self) -> None:
        super().flush()
        if self._audio and self._ending is None:
            left_s = self._start_s + len(self._audio) / 2 / self._rate_hz - time.monotonic()
            self._ending = asyncio.get_running_loop().call_later(max(0.0, left_s), self._end, False)

    def clear_buffer(self) -> None:
        if self._audio:
            self._end(True)

    def _end(self, interrupted: bool) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        played_s = min(time.monotonic() - self._start_s, len(self._audio) / 2 / self._rate_hz)
        self._file.writeframes(self._audio[: 2 * round(played_s * self._rate_hz)])
        self._audio.clear()
        self.on_playback_finished(playback_position=played_s, interrupted=interrupted)


class Recognizer(stt.STT):
    """pocketsphinx, on what the VAD takes for speech."""

    def __init__(self) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=False, interim_results=False))
        self._decoder = Decoder(samprate=HEARING_HZ, loglevel="FATAL")

    async def _recognize_impl(self, buffer: utils.AudioBuffer, **_: Any) -> stt.SpeechEvent:
        text = await asyncio.to_thread(self._recognize, rtc.combine_audio_frames(buffer).data.tobytes())
        alternative = stt.SpeechData(language="en", text=text)
        return stt.SpeechEvent(stt.SpeechEventType.FINAL_TRANSCRIPT, alternatives=[alternative])

    def _recognize(self, audio: bytes) -> str:
        self._decoder.start_utt()
        self._decoder.process_raw(audio, full_utt=True)
        self._decoder.end_utt()
        hypothesis = self._decoder.hyp()
        return hypothesis.hypstr if hypothesis else ""


class Script(llm.LLM):
    """In place of a language model: the next answer, word by word, as a model makes it."""

    def __init__(self, answers: Sequence[str]) -> None:
        super().__init__()
        self._answers = iter(answers)

    def chat(
        self,
        *,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool] | None = None,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
        **_: Any,
    ) -> llm.LLMStream:
        answer = next(self._answers, "Goodbye.")
        return _Answer(self, answer, chat_ctx=chat_ctx, tools=tools or [], conn_options=conn_options)


class _Answer(llm.LLMStream):
    def __init__(self, script: Script, answer: str, **kwargs: Any) -> None:
        super().__init__(script, **kwargs)
        self._answer = answer

    async def _run(self) -> None:
        for word in self._answer.split():
            delta = llm.ChoiceDelta(role="assistant", content=f"{word} ")
            self._event_ch.send_nowait(llm.ChatChunk(id="script", delta=delta))
            await asyncio.sleep(0.05)


async def talk(
    caller_wav: str, agent_wav: str, server: str, answers: Sequence[str] = ANSWERS
) -> tuple[list[dict[str, str]], list[Heard]]:
    """The messages of the conversation, and what the caller had heard whenever he interrupted."""
    interruptions: list[Heard] = []
    speech = TTS(target=server)

    @speech.on("speech_interrupted")
    def on_speech_interrupted(heard: Heard) -> None:
        print(f"interrupted after {heard.played_ms} ms; heard: {heard.text!r}")
        interruptions.append(heard)

    session = AgentSession(
        stt=Recognizer(),
        vad=inference.VAD(model="silero"),
        llm=Script(answers),
        tts=speech,
        use_tts_aligned_transcript=True,
        aec_warmup_duration=None,
        turn_handling={
            "turn_detection": "vad",
            "interruption": {"mode": "vad", "resume_false_interruption": False},
            # What is made before the caller's turn is over would be heard later than the server thinks.
            "preemptive_generation": {"enabled": False},
        },
    )
    caller = Caller(caller_wav)
    with wave.open(agent_wav, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(speech.sample_rate)
        session.input.audio = caller
        # As a room does it: the transcript keeps step with what is played, by the times of the words.
        synchronizer = TranscriptSynchronizer(
            next_in_chain_audio=Loudspeaker(file, speech.sample_rate), next_in_chain_text=None
        )
        session.output.audio = synchronizer.audio_output
        session.output.transcription = synchronizer.text_output
        await session.start(Agent(instructions="Answer the caller."))
        await caller.finished.wait()
        await session.aclose()
        await synchronizer.aclose()
    await speech.aclose()
    messages = [item for item in session.history.items if item.type == "message"]
    return [{"role": item.role, "content": item.text_content or ""} for item in messages], interruptions


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

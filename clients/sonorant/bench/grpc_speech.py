"""Speaks utterances through a Sonorant server."""

import asyncio
import itertools
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from sonorant.bench.loads import SpokenLoad, Target
from sonorant.bench.speakers import SAMPLE_RATE_HZ, Budget, SpeakingFailed
from sonorant.client.access import Access
from sonorant.client.client import SpeechClient
from sonorant.client.configs import scheduling, synthesis_config
from sonorant.client.errors import SpeechError, from_status
from sonorant.client.listening.listener import Listener
from sonorant.client.listening.playback import PlaybackMeter
from sonorant.client.speaking.session import Session
from sonorant.tts.v1.synthesis_pb2 import FinishReason, SynthesisConfig, UtteranceDone, UtteranceStarted


@asynccontextmanager
async def grpc_speaker(target: Target, speech: SpokenLoad, keys: Sequence[str] = ()) -> AsyncIterator["GrpcSpeaker"]:
    """Connect and yield a speaker, with equally many connections for each key. Raises UtteranceFailed if the server
    cannot be reached."""
    keys = keys or [""]
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(SpeechClient(target.address, access_to(target, key)))
            for key in [*keys] * math.ceil(target.num_connections / len(keys))
        ]
        try:
            for client in clients:
                await client.capabilities()
        except SpeechError as error:
            raise SpeakingFailed(error.code.name, str(error)) from None
        yield GrpcSpeaker(clients, speech, whole_text=target.protocol == "synthesize-stream")


def access_to(target: Target, key: str) -> Access:
    """As the environment says, with what was given on the command line."""
    access = Access.from_environment()
    tls, ca = access.tls or target.tls or target.ca is not None, target.ca or access.ca
    return replace(access, api_key=key or access.api_key, tls=tls, ca=ca)


class GrpcSpeaker:
    """Calls Speak, or with `whole_text` SynthesizeStream; both use the streaming layout, so the work is the same."""

    def __init__(self, clients: Sequence[SpeechClient], speech: SpokenLoad, *, whole_text: bool) -> None:
        self._clients = itertools.cycle(clients)  # each has a connection of its own
        self._speech = speech
        self._whole_text = whole_text
        self._scheduling = scheduling(batch=speech.batch, max_wait_ms=speech.max_wait_ms)

    async def speak(self, text: str, number: int, meter: PlaybackMeter) -> Budget:
        try:
            done = await (self._synthesize if self._whole_text else self._speak)(text, number, meter)
        except SpeechError as error:
            raise SpeakingFailed(error.code.name, str(error)) from None
        budget = done.stats.first_audio_budget
        return {part.name: getattr(budget, part.name) for part in budget.DESCRIPTOR.fields}

    async def _synthesize(self, text: str, number: int, meter: PlaybackMeter) -> UtteranceDone:
        listener, config = _listener(meter), self._config(number)
        listener.text_sent()
        done = UtteranceDone()
        async for payload in next(self._clients).stream(
            text, config, max_lead_ms=self._speech.max_lead_ms, scheduling=self._scheduling
        ):
            listener.take(payload)
            if isinstance(payload, UtteranceDone):
                done = payload
        return done

    async def _speak(self, text: str, number: int, meter: PlaybackMeter) -> UtteranceDone:
        words = words_of(text) if self._speech.words_per_s else [text]
        listener, config = _listener(meter), self._config(number)
        listener.text_sent()
        async with next(self._clients).speak(
            config,
            max_lead_ms=self._speech.max_lead_ms,
            text=words[0],
            end=len(words) == 1,
            scheduling=self._scheduling,
        ) as session:
            if self._speech.words_per_s:
                sending = asyncio.create_task(self._send_words(session, words))
            else:
                await session.finish()
                sending = None
            try:
                return await listener.read(session)
            finally:
                if sending is not None:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)  # the reader reports the error

    async def listen(self, text: Callable[[int], str], number: int, meter: PlaybackMeter) -> None:
        """Speak one utterance after another. Each is sent when the one before begins, so the server always knows what
        comes next."""
        try:
            listener = _listener(meter)
            listener.text_sent()
            async with next(self._clients).speak(
                self._config(number),
                max_lead_ms=self._speech.max_lead_ms,
                text=text(0),
                end=True,
                scheduling=self._scheduling,
            ) as session:
                num_sent = 1
                async for event in session:
                    if isinstance(event.payload, UtteranceStarted):
                        await session.send_text(text(num_sent))
                        await session.end()
                        num_sent += 1
                    listener.take(event.payload)
        except SpeechError as error:
            raise SpeakingFailed(error.code.name, str(error)) from None
        raise SpeakingFailed("ENDED", "the server ended the session")

    async def _send_words(self, session: Session, words: Sequence[str]) -> None:
        """Send all words but the first, which was sent with the call, then finish."""
        begin_s = time.monotonic()
        for number, word in enumerate(words[1:], 1):
            await asyncio.sleep(begin_s + number / self._speech.words_per_s - time.monotonic())
            await session.send_text(word)
        await session.finish()

    def _config(self, number: int) -> SynthesisConfig:
        speech = self._speech
        voices = speech.voices
        recording = voices.recording(number) if voices.task == "clone" else None
        config = synthesis_config(
            voice=voices.name,
            design=voices.design,
            reference=recording.audio if recording else None,
            transcript=recording.transcript if recording else "",
            language=speech.language,
            seed=(speech.seed + number) % 2**32,
            sample_rate_hz=SAMPLE_RATE_HZ,
            non_streaming_mode=False,
        )
        if speech.num_frames:
            config.sampling.max_frames = speech.num_frames
            config.sampling.ignore_eos = True
        return config


_GOOD = (FinishReason.FINISH_REASON_COMPLETED, FinishReason.FINISH_REASON_MAX_AUDIO)
_IDEOGRAPHS = r"\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]\W*|[^{_IDEOGRAPHS}\s]+\s*|\s+")


def words_of(text: str) -> list[str]:
    """Cut a text before each word, or before each character in scripts without spaces."""
    return _WORD.findall(text)


def _listener(meter: PlaybackMeter) -> Listener:
    return Listener(meter, on_done=_check_good, measure_sound=True)


def _check_good(done: UtteranceDone, _utterance_id: str) -> None:
    if done.reason in _GOOD:
        return
    if done.reason == FinishReason.FINISH_REASON_FAILED:
        error = from_status(done.error)
        raise SpeakingFailed(error.code.name, str(error))
    reason = FinishReason.Name(done.reason).removeprefix("FINISH_REASON_")
    raise SpeakingFailed(reason, f"the server ended an utterance as {reason}")

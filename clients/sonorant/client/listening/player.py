"""Plays speech through the sound card, and knows how much of it has been heard."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from sonorant.client.listening.audio_out import player_command
from sonorant.client.listening.playback_clock import PlaybackClock


class Player:
    """Plays samples in the order in which they come, at once. Leaving the context waits until all is played.

    async with Player(session.started.audio.sample_rate_hz) as player:
        player.play(chunk.data, utterance_id)
        ...
        await session.cancel(utterance_id, played_ms=await player.drop(utterance_id))  # somebody interrupts
    """

    def __init__(self, sample_rate_hz: int, command: Sequence[str] | None = None) -> None:
        """`command`: a program that plays 16-bit mono samples from its stdin; None = ffplay or aplay. Raises
        FileNotFoundError if neither is installed."""
        self._command = command or player_command(sample_rate_hz)
        if not self._command:
            raise FileNotFoundError("neither ffplay nor aplay is installed; give the command of another player")
        self._bytes_per_s = 2 * sample_rate_hz
        self._clock = PlaybackClock()
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is not None:
            await self._stop()
            return
        assert self._process is not None and self._process.stdin is not None
        with suppress(ConnectionError):  # its user has closed the player
            await self._process.stdin.drain()
        self._process.stdin.close()
        await self._process.wait()

    def play(self, pcm_s16le: bytes, utterance_id: str = "") -> None:
        """Append samples; those that the player has not taken yet wait here."""
        assert self._process is not None and self._process.stdin is not None, "enter the context first"
        self._clock.add(utterance_id, len(pcm_s16le) / self._bytes_per_s)
        self._process.stdin.write(pcm_s16le)

    def played_ms(self, utterance_id: str = "") -> int:
        """Return how much of the utterance has been heard, by the clock."""
        return self._clock.played_ms(utterance_id)

    async def heard(self) -> None:
        """Wait until everything so far has been heard."""
        while remaining_s := self._clock.remaining_s():  # noqa: ASYNC110 - more may come meanwhile
            await asyncio.sleep(remaining_s)

    async def drop(self, utterance_id: str = "") -> int:
        """Be silent at once, and drop everything that was not heard. Return what was heard of the utterance in ms."""
        played_ms = self._clock.played_ms(utterance_id)
        self._clock = PlaybackClock()
        await self._stop()
        await self._start()
        return played_ms

    async def _start(self) -> None:
        assert self._command is not None
        self._process = await asyncio.create_subprocess_exec(*self._command, stdin=asyncio.subprocess.PIPE)

    async def _stop(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

"""Lines of language models are spoken by a real voice: nothing is lost without a word about it."""

import asyncio
import itertools
from collections.abc import Iterable

import pytest

from sonorant.client import SpeechClient, UtteranceDone, Warning, synthesis_config
from sonorant.service.text.formats import TextFormat, WrittenAs
from sonorant.service.text.reading import Reading
from sonorant.service.utterance.word_times import units
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_COMPLETED, Mark
from tests.e2e.server_process import ServerProcess
from tests.written_texts import lines

PART, CONCURRENT = 100, 4  # lines
LEAST_MS = 30  # of a unit: half of what the fastest of a hundred lines take


def words_of(line: str) -> list[str]:
    reading = Reading(WrittenAs(TextFormat.MARKDOWN).markup)
    said = "".join(part.text for part in reading.push(line) + reading.settle())
    return [word for word in said.split() if any(map(str.isalnum, word))]


def letters_of(words: Iterable[str]) -> str:
    return "".join(filter(str.isalnum, "".join(words)))


async def check_spoken(server: ServerProcess, first: int, last: int) -> None:
    turns = asyncio.Semaphore(CONCURRENT)

    async def check(client: SpeechClient, line: str) -> None:
        marks, told, done = list[Mark](), list[str](), None
        config = synthesis_config(text_format="markdown")
        async with turns:
            async for payload in client.stream(line, config, timestamps=True, max_lead_ms=0):
                match payload:
                    case UtteranceDone():
                        done = payload
                    case Warning(code=code):
                        told.append(code)
                    case _:
                        marks += getattr(payload, "marks", ())
        assert done is not None
        words = words_of(line)
        if told or done.reason != FINISH_REASON_COMPLETED:
            assert words or told == ["NO_SPEAKABLE_TEXT"]
            return
        num_units = sum(map(units, words))
        assert done.stats.spoken_chars == len(line)
        assert done.stats.audio_ms >= LEAST_MS * num_units, line
        assert letters_of(mark.text for mark in marks) == letters_of(words), line
        assert [mark.start_ms for mark in marks] == sorted(mark.start_ms for mark in marks)

    async with SpeechClient(server.address) as client, asyncio.TaskGroup() as tasks:
        for line in itertools.islice(lines(last), first, None):
            if any(map(str.isalnum, line)):  # others are refused
                tasks.create_task(check(client, line))


@pytest.mark.slow
async def test_answers_are_spoken_whole_or_it_is_told(server: ServerProcess) -> None:
    await check_spoken(server, 0, 8)


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(5))
async def test_five_hundred_lines(server: ServerProcess, part: int) -> None:
    await check_spoken(server, part * PART, (part + 1) * PART)

"""Phrases that the operator wants in the cache from the start: read from a file, spoken once the engine is ready."""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from google.protobuf.json_format import Parse, ParseError

from sonorant.engine import EngineError
from sonorant.service.access.api_keys import ANYONE
from sonorant.service.dictionaries.dictionaries import Dictionaries
from sonorant.service.errors import InvalidField, RequestError
from sonorant.service.pacing.pacer import Playout
from sonorant.service.text.checks import check_whole
from sonorant.service.utterance.allowance import Allowance
from sonorant.service.utterance.delivery import Message
from sonorant.service.utterance.phrases import is_greedy
from sonorant.service.utterance.requests import check_synthesis
from sonorant.service.utterance.utterance import Beginning, Utterance
from sonorant.service.voices.choice import VoiceChooser
from sonorant.settings.sources import similar
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest

log = logging.getLogger(__name__)


_NO_FIELD = re.compile(r'has no field named "(?P<name>\w+)".*?\[(?P<known>[^\]]*)\]', re.DOTALL)


class PhrasesFileError(Exception):
    """The file of phrases cannot be used; the message says where and why."""


def read_phrases(path: Path) -> list[SynthesizeRequest]:
    """Read a file with one SynthesizeRequest in JSON per line. Raises PhrasesFileError."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # not `splitlines`: JSON may contain other line breaks
    except (OSError, UnicodeDecodeError) as error:
        raise PhrasesFileError(f"{path} cannot be read: {error}") from error
    requests = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                requests.append(Parse(line, SynthesizeRequest()))
            except ParseError as error:
                raise PhrasesFileError(
                    f"{path}, line {number}: not a SynthesizeRequest in JSON: {error}{_meant(str(error))}"
                ) from error
    return requests


def _meant(error: str) -> str:
    """Return the field that was probably meant, from what protobuf says of one that there is not."""
    found = _NO_FIELD.search(error)
    return similar(found["name"], re.findall(r"'(\w+)'", found["known"])) if found else ""


async def speak_phrases(
    requests: Sequence[SynthesizeRequest],
    voices: VoiceChooser,
    dictionaries: Dictionaries,
    allowance: Allowance,
) -> None:
    """Speak the phrases one after another, for the cache of `allowance`. Those that fail are logged."""
    for request in requests:
        # If it is unset, the layout differs between `Speak` and RPCs that know the whole text: keep both.
        for layout in {None, None if request.config.HasField("non_streaming_mode") else False}:
            try:
                await _speak(request, layout, voices, dictionaries, allowance)
            except (RequestError, EngineError) as error:
                log.error("cannot keep the phrase %r: %s", request.text[:40], error)


async def _speak(
    request: SynthesizeRequest,
    layout: bool | None,
    voices: VoiceChooser,
    dictionaries: Dictionaries,
    allowance: Allowance,
) -> None:
    check_whole(request.text, allowance.max_text_chars, "text")
    choice = await voices.choose(request.config.voice, "config.voice", ANYONE)
    spec = check_synthesis(
        request.config, choice, allowance.reservations.engine, "config", non_streaming_default=layout
    )
    spec = spec.over(*await dictionaries.named(request.config, "config", ANYONE))
    if not (spec.seed_given or is_greedy(spec.params)):
        raise InvalidField("config.sampling.seed", "without a seed, each time sounds different; set one")
    utterance = Utterance("", spec, allowance, Beginning(Playout()))
    utterance.accept(request.text)
    utterance.push(request.text)
    utterance.end()

    async def drop(message: Message, on_taken: Callable[[], None] | None = None) -> None:
        if on_taken is not None:
            on_taken()
        await asyncio.sleep(0)  # gives others their turn

    await utterance.speak(drop)

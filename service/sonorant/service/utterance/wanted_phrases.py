"""Phrases that the operator wants in the cache from the start: read from a file, spoken once the engine is ready."""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from google.protobuf.json_format import Parse, ParseError

from sonorant.engine import EngineError
from sonorant.service.access.api_keys import ANYONE
from sonorant.service.admission.reservations import Reservations
from sonorant.service.calls.loop_share import Part
from sonorant.service.errors import InvalidField, RequestError
from sonorant.service.pacing.playout import Playout
from sonorant.service.text.checks import check_whole
from sonorant.service.utterance.delivery import Message
from sonorant.service.utterance.phrases import EVERYBODY, CallerPhrases, Phrases, is_greedy
from sonorant.service.utterance.requests import check_synthesis
from sonorant.service.utterance.utterance import Utterance
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
    reservations: Reservations,
    voices: VoiceChooser,
    phrases: Phrases,
    max_text_chars: int,
    part: Part,
) -> None:
    """Speak the phrases one after another, for the cache of all callers. Those that fail are logged."""
    for request in requests:
        # If it is unset, the layout differs between `Speak` and RPCs that know the whole text: keep both.
        for layout in {None, None if request.config.HasField("non_streaming_mode") else False}:
            try:
                await _speak(request, layout, reservations, voices, phrases, max_text_chars, part)
            except (RequestError, EngineError) as error:
                log.error("cannot keep the phrase %r: %s", request.text[:40], error)
    log.info("%d phrases are kept, %d bytes", len(phrases), phrases.num_bytes)


async def _speak(
    request: SynthesizeRequest,
    layout: bool | None,
    reservations: Reservations,
    voices: VoiceChooser,
    phrases: Phrases,
    max_text_chars: int,
    part: Part,
) -> None:
    check_whole(request.text, max_text_chars, "text")
    choice = await voices.choose(request.config.voice, "config.voice", ANYONE)
    spec = check_synthesis(request.config, choice, reservations.engine, "config", non_streaming_default=layout)
    if not (spec.seed_given or is_greedy(spec.params)):
        raise InvalidField("config.sampling.seed", "without a seed, each time sounds different; set one")
    shared = CallerPhrases(phrases, EVERYBODY)
    utterance = Utterance(
        "", spec, reservations, Playout(), 0, max_text_chars, lambda num_chars: None, phrases=shared, part=part
    )
    utterance.accept(request.text)
    utterance.push(request.text)
    utterance.end()

    async def drop(message: Message, on_taken: Callable[[], None] | None = None) -> None:
        if on_taken is not None:
            on_taken()
        await asyncio.sleep(0)  # gives others their turn

    await utterance.speak(drop)

"""The answer of `Explain`: everything that is decided about a text before the model sees it. Opens no stream."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from typing import Any

from sonorant.engine import EngineError, EngineInfo, EnginePool, Explanation, InvalidSynthesis
from sonorant.service.audio.codes import CodesHeader
from sonorant.service.audio.writer import AudioSpec
from sonorant.service.calls.context import CallContext
from sonorant.service.dictionaries.dictionaries import Dictionaries
from sonorant.service.errors import DictionaryNotFound, InvalidField, RequestError
from sonorant.service.status import to_status
from sonorant.service.text.checks import check_whole
from sonorant.service.text.reading import Reading
from sonorant.service.text.segmenter import segments_of
from sonorant.service.utterance.requests import UtteranceSpec, check_synthesis, left_out
from sonorant.service.voices.choice import VoiceChooser
from sonorant.tts.v1 import audio_pb2, explain_pb2, synthesis_pb2

MAX_FAULTS = 16  # of one config
_BYTES_PER_SAMPLE = {audio_pb2.AUDIO_ENCODING_MULAW: 1, audio_pb2.AUDIO_ENCODING_ALAW: 1}


async def explain(
    request: explain_pb2.ExplainRequest,
    engine: EnginePool,
    voices: VoiceChooser,
    dictionaries: Dictionaries,
    call: CallContext,
    max_text_chars: int,
    max_response_bytes: int,
) -> explain_pb2.ExplainResponse:
    """Return the answer. Errors of the request are part of it, so any exception raised here is a bug."""
    response = explain_pb2.ExplainResponse(model=engine.info.model)
    response.limits.add(name="text_chars", value=len(request.text), limit=max_text_chars)

    async def check(config: synthesis_pb2.SynthesisConfig) -> UtteranceSpec:
        choice = await voices.choose(config.voice, "config.voice", call.caller)
        whole = config.audio.encoding == audio_pb2.AUDIO_ENCODING_FLAC
        spec = check_synthesis(
            config,
            choice,
            engine,
            "config",
            non_streaming_default=None,
            whole=whole,
            default_format=call.caller.text_format,
        )
        return spec.over(*await dictionaries.named(config, "config", call.caller))

    spec, faults = await _checked(request.config, check)
    response.errors.extend(to_status(error, call.request_id) for error in faults)
    if spec is not None:
        _tell_settings(response, spec)
    try:
        check_whole(request.text, max_text_chars, "text")
        if spec is not None:
            # In a thread: a long text would hold up the event loop long enough for gaps in others' audio.
            await asyncio.to_thread(_tell_prompt, response, spec, engine, request.text, max_response_bytes)
    except (RequestError, InvalidSynthesis) as error:
        response.errors.append(to_status(error, call.request_id))
    return response


async def _checked(
    config: synthesis_pb2.SynthesisConfig, check: Callable[[synthesis_pb2.SynthesisConfig], Awaitable[UtteranceSpec]]
) -> tuple[UtteranceSpec | None, list[Exception]]:
    """Return the spec of the config, or all its faults. A check stops at the first fault, so the rest is checked again
    without that field."""
    faults: list[Exception] = []
    rest = synthesis_pb2.SynthesisConfig()
    rest.CopyFrom(config)
    while len(faults) < MAX_FAULTS:
        try:
            spec = await check(rest)
            return None if faults else spec, faults
        except (RequestError, EngineError) as error:
            faults.append(error)
            field = error.field if isinstance(error, InvalidField | DictionaryNotFound) else "config.voice"
            if not _clear(rest, field.removeprefix("config.")):
                break
    return None, faults


def _clear(message: Any, path: str) -> bool:
    """Leave out the field with this path, or what can be said of it; return whether that changed anything."""
    name, _, rest = path.partition(".")
    name = name.partition("[")[0]
    field = next((field for field, _ in message.ListFields() if field.name == name), None)
    if field is None:
        return False
    is_message = field.message_type is not None and not field.message_type.GetOptions().map_entry
    if not (rest and is_message and _clear(getattr(message, name), rest)):
        message.ClearField(name)
    return True


def _tell_settings(response: explain_pb2.ExplainResponse, spec: UtteranceSpec) -> None:
    response.warnings.extend(warned.to_proto() for warned in spec.warnings)
    response.model = spec.info.model
    response.voice_id = spec.voice_id
    response.non_streaming_mode = spec.params.non_streaming_mode
    response.audio.CopyFrom(spec.audio.to_proto())
    response.speed = spec.audio.speed
    response.volume_gain_db = spec.audio.gain_db
    response.sampling.CopyFrom(synthesis_pb2.Sampling(**asdict(spec.params.sampling)))
    if not spec.seed_given:
        response.sampling.ClearField("seed")


def _tell_prompt(
    response: explain_pb2.ExplainResponse, spec: UtteranceSpec, engine: EnginePool, text: str, max_response_bytes: int
) -> None:
    start, texts, most_frames, most_positions, seconds = 0, list[str](), 0, 0, 0.0
    segments, reading = segments_of(text, spec.policy, spec.lexicon, spec.info.max_segment_chars, spec.written_as)
    lost = [word for segment in segments for word in spec.info.lost_words(segment.spoken)]
    for written, spoken, manner, follows_cut in segments:
        is_whole = follows_cut and spec.info.whole_after_cut
        params = replace(spec.params, non_streaming_mode=True) if is_whole else spec.params
        explanation = engine.explain(params, spoken, written)
        if not texts:
            _tell_first(response, explanation)
        texts.append(explanation.text)
        _tell_segment(response, explanation, reading, start, written)
        most_frames = max(most_frames, explanation.estimated_frames)
        speed = spec.audio.varied(manner.gain_db, manner.speed).speed
        seconds += explanation.estimated_frames / engine.info.frame_rate_hz / speed
        most_positions = max(most_positions, len(explanation.rows) + explanation.estimated_frames)
        start += len(written)
    response.text = " ".join(filter(None, texts))
    if lost:
        response.warnings.append(left_out(lost).to_proto())
    response.estimated_audio_ms = round(seconds * 1000)
    for name, value, limit in (
        ("positions", most_positions, explanation.max_context),
        ("frames", most_frames, explanation.max_frames),
        ("response_bytes", round(seconds * _bytes_per_s(spec.audio, spec.info)), max_response_bytes),
    ):
        response.limits.add(name=name, value=value, limit=limit)


def _tell_first(response: explain_pb2.ExplainResponse, explanation: Explanation) -> None:
    """Tell what the model is given before and beside the first segment."""
    response.language = explanation.language
    for row in explanation.rows:
        response.prompt.add(text=row.text, codec=row.codec)
    response.trailing.extend(explanation.trailing)
    response.sampling.max_frames = explanation.max_frames


def _tell_segment(
    response: explain_pb2.ExplainResponse, explanation: Explanation, reading: Reading, start: int, written: str
) -> None:
    for change in explanation.changes:
        response.changes.add(
            text_start=reading.written_begin(start + change.start),
            text_end=reading.written_end(start + change.end),
            written=change.written,
            given=change.given,
        )
    for token_id, token in zip(explanation.token_ids, explanation.tokens, strict=True):
        response.tokens.add(id=token_id, text=token)
    response.segments.add(
        text_start=reading.written_begin(start),
        text_end=reading.written_end(start + len(written)),
        num_tokens=len(explanation.token_ids),
        estimated_frames=explanation.estimated_frames,
    )
    response.estimated_frames += explanation.estimated_frames


def _bytes_per_s(audio: AudioSpec, info: EngineInfo) -> float:
    if audio.encoding == audio_pb2.AUDIO_ENCODING_CODES:
        return CodesHeader.of(info).frame_bytes * info.frame_rate_hz
    return audio.bitrate_bps / 8 or audio.sample_rate_hz * _BYTES_PER_SAMPLE.get(audio.encoding, 2)

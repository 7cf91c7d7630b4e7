"""Checks whether a checkpoint can speak an utterance. Every message says what is wrong and what to do about it."""

import re
from collections.abc import Sequence
from difflib import get_close_matches

import numpy as np

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.checkpoint.sampling_ranges import out_of_range
from sonorant.engine.errors import InvalidSynthesis, UnknownSpeaker, UnsupportedTask
from sonorant.engine.types import Float32Array, SynthesisParams

_LANGUAGE_TAG = re.compile(r"([a-z]{2,3})([-_][a-z0-9]{1,8})*")  # roughly BCP-47; only the first part is used
_LANGUAGE_OF_SUBTAG = {
    "cmn": "chinese",
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fr": "french",
    "it": "italian",
    "ja": "japanese",
    "ko": "korean",
    "pt": "portuguese",
    "ru": "russian",
    "zh": "chinese",
}


def check_params(params: SynthesisParams, checkpoint: Checkpoint) -> None:
    """Raise InvalidSynthesis, UnknownSpeaker or UnsupportedTask if something is wrong. Does not check lengths."""
    if checkpoint.task != "base" and (params.reference_codes is not None or params.reference_text):
        raise UnsupportedTask(
            "reference_codes",
            f"{checkpoint.name} cannot clone a voice; leave the reference out or load a Base checkpoint",
        )
    match checkpoint.task:
        case "custom_voice":
            _check_one_voice(params, checkpoint)
        case "base":
            _check_no_speaker(params, "its voice comes from reference audio", checkpoint)
            _check_reference(params, checkpoint)
        case "voice_design":
            _check_no_speaker(params, "its voice comes from instruct", checkpoint)
            if params.x_vector is not None:
                raise UnsupportedTask(
                    "x_vector",
                    f"{checkpoint.name} cannot use a speaker embedding, its voice comes from instruct; leave it out or "
                    "load a Base checkpoint",
                )
    resolve_language(params.language, checkpoint)
    if wrong := out_of_range(params.sampling):
        raise InvalidSynthesis(*wrong)


def resolve_language(name: str, checkpoint: Checkpoint) -> str | None:
    """Return the checkpoint's name of a language given by name or tag; None for "auto" and "": the text decides."""
    wanted = name.strip().lower()
    if wanted in ("auto", ""):
        return None
    tag = _LANGUAGE_TAG.fullmatch(wanted)
    language = _LANGUAGE_OF_SUBTAG.get(tag[1], wanted) if tag else wanted
    if language not in checkpoint.languages:
        raise InvalidSynthesis(
            "language",
            f"{checkpoint.name} does not speak language {name!r}{_did_you_mean(wanted, checkpoint.languages)}; "
            f"use auto, {_listed(checkpoint.languages)}, or the tag of one of them, such as en-US",
        )
    return language


def check_speaker(name: str, checkpoint: Checkpoint) -> None:
    """Raise UnknownSpeaker, or UnsupportedTask if the checkpoint has no speakers at all."""
    if name.lower() in checkpoint.talker.speaker_ids:
        return
    names = sorted(checkpoint.talker.speaker_ids)
    if not names:
        raise UnsupportedTask("speaker", f"{checkpoint.name} has no speakers; load a CustomVoice checkpoint")
    raise UnknownSpeaker(
        "speaker",
        f"{checkpoint.name} has no speaker {name!r}{_did_you_mean(name.lower(), names)}; use {_listed(names)}",
    )


def _check_one_voice(params: SynthesisParams, checkpoint: Checkpoint) -> None:
    """Raise InvalidSynthesis unless there is either a speaker or a speaker embedding, such as that of a mix."""
    if params.x_vector is not None:
        if params.speaker:
            raise InvalidSynthesis("x_vector", "the voice is a speaker or a speaker embedding; give only one of them")
        _check_x_vector(params.x_vector, checkpoint)
    elif params.speaker:
        check_speaker(params.speaker, checkpoint)
    else:
        names = _listed(sorted(checkpoint.talker.speaker_ids))
        raise InvalidSynthesis("speaker", f"{checkpoint.name} needs a speaker: {names}")


def _check_no_speaker(params: SynthesisParams, reason: str, checkpoint: Checkpoint) -> None:
    if params.speaker:
        raise UnsupportedTask(
            "speaker",
            f"{checkpoint.name} has no speakers, {reason}; leave speaker out or load a CustomVoice checkpoint",
        )


def _check_x_vector(x_vector: Float32Array, checkpoint: Checkpoint) -> None:
    hidden_size = checkpoint.talker.stack.hidden_size
    if x_vector.shape != (hidden_size,):
        raise InvalidSynthesis(
            "x_vector",
            f"the speaker embedding has shape {x_vector.shape}, {checkpoint.name} needs ({hidden_size},); make it with "
            "this checkpoint or one of the same size",
        )
    if not np.isfinite(x_vector).all():
        raise InvalidSynthesis("x_vector", "the speaker embedding has values that are not finite; make it again")


def _check_reference(params: SynthesisParams, checkpoint: Checkpoint) -> None:
    if params.instruct:
        raise UnsupportedTask(
            "instruct",
            f"{checkpoint.name} clones voices and takes no instruct; leave it out, or load a CustomVoice or "
            "VoiceDesign checkpoint",
        )
    if params.x_vector is None:
        raise InvalidSynthesis("x_vector", f"{checkpoint.name} clones voices; give it a voice or reference audio")
    _check_x_vector(params.x_vector, checkpoint)
    codes = params.reference_codes
    if codes is None:
        if params.reference_text:
            raise InvalidSynthesis(
                "reference_text", "reference_text belongs to reference_codes; give both, or neither for the voice alone"
            )
        return
    if fault := checkpoint.fault_of_codes(codes):
        raise InvalidSynthesis(
            "reference_codes",
            f"reference_codes {fault}; encode the reference audio with this checkpoint's codec",
        )
    if not params.reference_text.strip():
        raise InvalidSynthesis(
            "reference_text",
            "reference_text is empty; give the words spoken in the reference audio, or leave reference_codes out",
        )


def check_size_of_embedding(x_vector: Float32Array, largest: float, checkpoint: Checkpoint) -> None:
    """Raise InvalidSynthesis if a speaker embedding has values far larger than the checkpoint's own ones."""
    value = float(np.abs(x_vector).max())
    if value > largest:
        raise InvalidSynthesis(
            "x_vector",
            f"the speaker embedding has values up to {value:.3g}, those of {checkpoint.name} are far below "
            f"{largest:.3g}; make it again",
        )


def _did_you_mean(wanted: str, names: Sequence[str]) -> str:
    close = get_close_matches(wanted, names, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)

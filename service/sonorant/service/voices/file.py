"""A stored voice as one safetensors file: its tensors, and the rest as JSON in the metadata. Pure.

The same file is kept, exported and imported, so that reading one trusts nothing in it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from sonorant.service.voices.store import VoiceAbout, VoiceTensors

MAX_FILE_BYTES = 1024 * 1024
MAX_HEADER_BYTES = 256 * 1024  # JSON, which takes everybody's event loop; all that may be said of a voice fits twice
MAX_CODE_ROWS = 4096  # 5 minutes; more than any checkpoint has room for
MAX_UNIX_S = 253_402_300_800  # the end of the year 9999, and of what google.protobuf.Timestamp takes
KINDS = ("cloned", "designed", "embedded", "mixed")
_KEY = "sonorant.voice.v1"  # the only one: safetensors writes several in any order, and a voice is to have one file
_CHECKSUM = "sha256"  # beside what is said about the voice; files without one are taken as they are
_DTYPES = {"speaker_embedding": (np.float32, 1), "reference_codes": (np.int16, 2)}  # dtype, number of axes


class NotAVoiceFile(ValueError):
    """The message says what is wrong with it."""


def pack(about: VoiceAbout, tensors: VoiceTensors) -> bytes:
    arrays = {name: getattr(tensors, name) for name in _DTYPES if getattr(tensors, name) is not None}
    said = asdict(about) | {_CHECKSUM: _checksum(about, arrays)}
    data: bytes = save(arrays, {_KEY: json.dumps(said, ensure_ascii=False)})
    return data


def unpack(data: bytes) -> tuple[VoiceAbout, VoiceTensors]:
    """What is read has the right types and numbers of axes; what a checkpoint says to it is another question.

    Raises NotAVoiceFile.
    """
    if len(data) > MAX_FILE_BYTES:
        raise NotAVoiceFile(f"{len(data)} bytes are over the limit of {MAX_FILE_BYTES}")
    if (header_bytes := int.from_bytes(data[:8], "little")) > MAX_HEADER_BYTES:
        raise NotAVoiceFile(f"it is no safetensors file, or one with a header of over {MAX_HEADER_BYTES} bytes")
    try:
        metadata = json.loads(data[8 : 8 + header_bytes]).get("__metadata__")
        arrays = load(data)
    except (SafetensorError, ValueError, RecursionError, AttributeError, KeyError) as error:
        raise NotAVoiceFile(f"it is no safetensors file: {error}") from None
    if not isinstance(metadata, dict) or _KEY not in metadata:
        raise NotAVoiceFile(f"its metadata has no {_KEY}")
    said = _object(metadata[_KEY])
    checksum = said.pop(_CHECKSUM, None)
    about = _about_of(said)
    for name, array in arrays.items():
        if name not in _DTYPES:
            raise NotAVoiceFile(f"it has a tensor {name!r}; a voice has {', '.join(_DTYPES)}")
        dtype, num_axes = _DTYPES[name]
        if array.dtype != dtype or array.ndim != num_axes or not 0 < len(array) <= MAX_FILE_BYTES:
            raise NotAVoiceFile(
                f"{name} is {array.dtype} {list(array.shape)}; {np.dtype(dtype)} with {num_axes} axes is right"
            )
    tensors = VoiceTensors(
        **{name: array.copy() for name, array in arrays.items()}
    )  # of the file, nothing is held on to
    if checksum is not None and checksum != _checksum(about, arrays):
        raise NotAVoiceFile("it is damaged: its content does not fit its checksum")
    _check_whole(about, tensors)
    return about, tensors


def _checksum(about: VoiceAbout, arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    digest = hashlib.sha256(json.dumps(asdict(about)).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def about_to_json(about: VoiceAbout) -> str:
    return json.dumps(asdict(about), ensure_ascii=False)


def about_from_json(text: str) -> VoiceAbout:
    """Raises NotAVoiceFile."""
    return _about_of(_object(text))


def _object(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
        json.dumps(values, ensure_ascii=False).encode()  # half of a surrogate pair is JSON, and no text
    except (ValueError, RecursionError, TypeError) as error:
        raise NotAVoiceFile(f"what it says about the voice is no JSON of whole text: {error}") from None
    if not isinstance(values, dict):
        raise NotAVoiceFile("what it says about the voice is no JSON object")
    return values


def _about_of(values: dict[str, Any]) -> VoiceAbout:
    known = {f.name for f in fields(VoiceAbout)}
    if not {"voice_id", "kind", "create_s"} <= values.keys() <= known:
        raise NotAVoiceFile(f"it must say voice_id, kind and create_s, and nothing but {', '.join(sorted(known))}")
    for name, value in values.items():
        if not _has_type(name, value):
            raise NotAVoiceFile(f"{name} has a wrong type")
    if values["kind"] not in KINDS:
        raise NotAVoiceFile(f"kind is {values['kind']!r}; there are {', '.join(KINDS)}")
    if "languages" in values:
        values["languages"] = tuple(values["languages"])
    return VoiceAbout(**values)


def _has_type(name: str, value: object) -> bool:
    match name:
        case "create_s":
            return isinstance(value, int | float) and 0 <= value < MAX_UNIX_S
        case "expire_s":
            return value is None or _has_type("create_s", value)
        case "reference_audio_ms":
            return type(value) is int and 0 <= value < 2**32
        case "languages":
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
        case "labels":
            return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    return isinstance(value, str)


def _check_whole(about: VoiceAbout, tensors: VoiceTensors) -> None:
    """What a kind of voice is made of, no more and no less."""
    embedding, codes = tensors.speaker_embedding, tensors.reference_codes
    if (embedding is None) != (about.kind == "designed"):
        raise NotAVoiceFile(f"a {about.kind} voice and a speaker embedding: one of them is missing or too much")
    if embedding is not None and not np.isfinite(embedding).all():
        raise NotAVoiceFile("its speaker embedding has values that are not finite")
    if (codes is not None) != bool(about.transcript) or (codes is not None and about.kind != "cloned"):
        raise NotAVoiceFile("reference codes and a transcript belong together, to a cloned voice")
    if codes is not None and len(codes) > MAX_CODE_ROWS:
        raise NotAVoiceFile(f"{len(codes)} reference frames are over the limit of {MAX_CODE_ROWS}")
    if (about.kind == "designed") != bool(about.design):
        raise NotAVoiceFile("a designed voice has a description to be made from, others have none")

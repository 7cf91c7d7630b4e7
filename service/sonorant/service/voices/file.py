"""The file of a stored voice: a safetensors file with its tensors, and the rest as JSON in the metadata. Pure.

Stored, exported and imported files are the same, so reading trusts nothing in a file.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

MAX_FILE_BYTES = 1024 * 1024
MAX_HEADER_BYTES = 256 * 1024  # JSON, parsed on the event loop; twice the most that a voice can need
MAX_CODE_ROWS = 4096  # 5 minutes; more than any checkpoint has room for
MAX_UNIX_S = 253_402_300_800  # the end of the year 9999, which is the limit of google.protobuf.Timestamp
KINDS = ("cloned", "designed", "embedded", "mixed")
_KEY = "sonorant.voice.v1"  # the only key: safetensors writes several in any order, and a voice should have one file
_CHECKSUM = "sha256"  # key beside the metadata of the voice: who speaks and who agreed to it belong together
_DTYPES = {"speaker_embedding": (np.float32, 1), "reference_codes": (np.int16, 2)}  # dtype, number of axes


@dataclass(frozen=True, slots=True)
class VoiceAbout:
    """The metadata of a stored voice: everything but its tensors. Small enough to list thousands."""

    voice_id: str
    kind: str  # cloned, designed, embedded or mixed
    create_s: float  # Unix time
    expire_s: float | None = None  # None = never
    display_name: str = ""
    description: str = ""
    languages: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    consent: str = ""
    design: str = ""
    transcript: str = ""
    reference_audio_ms: int = 0
    model: str = ""  # name of the checkpoint that it was made with
    fingerprint: str = ""  # of that checkpoint; the same whatever its name
    preview_text: str = ""  # what is said to try the voice


@dataclass(frozen=True, slots=True)
class VoiceTensors:
    """The tensors that the model needs; None if a voice does not have one."""

    speaker_embedding: npt.NDArray[np.float32] | None = None  # [hidden]
    reference_codes: npt.NDArray[np.int16] | None = None  # [frames, codebooks]

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in (self.speaker_embedding, self.reference_codes) if array is not None)


class NotAVoiceFile(ValueError):
    """The file is not a valid voice; the message says what is wrong with it."""


def pack(about: VoiceAbout, tensors: VoiceTensors) -> bytes:
    arrays = {name: getattr(tensors, name) for name in _DTYPES if getattr(tensors, name) is not None}
    said = _said(about) | {_CHECKSUM: _checksum(about, arrays)}
    data: bytes = save(arrays, {_KEY: json.dumps(said, ensure_ascii=False)})
    return data


def unpack(data: bytes) -> tuple[VoiceAbout, VoiceTensors]:
    """Read a file. The types and numbers of axes are checked, but not whether it fits a checkpoint.

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
    )  # copied, so that the file's bytes can be freed
    _check_whole(about, tensors)
    if checksum is None:
        raise NotAVoiceFile("it has no checksum, so its consent may be of another voice; export the voice again")
    if checksum != _checksum(about, arrays):
        raise NotAVoiceFile("it is damaged: its content does not match its checksum")
    return about, tensors


def _checksum(about: VoiceAbout, arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    digest = hashlib.sha256(json.dumps(_said(about)).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def _said(about: VoiceAbout) -> dict[str, Any]:
    """Without a preview text if there is none: then a file is as in earlier versions, and its checksum, too."""
    said = asdict(about)
    return said if about.preview_text else {name: value for name, value in said.items() if name != "preview_text"}


def about_to_json(about: VoiceAbout) -> str:
    return json.dumps(_said(about), ensure_ascii=False)


def about_from_json(text: str) -> VoiceAbout:
    """Parse what `about_to_json` wrote. Raises NotAVoiceFile."""
    return _about_of(_object(text))


def _object(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
        json.dumps(values, ensure_ascii=False).encode()  # raises for half a surrogate pair: valid JSON, but not text
    except (ValueError, RecursionError, TypeError) as error:
        raise NotAVoiceFile(f"its metadata of the voice is not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise NotAVoiceFile("its metadata of the voice is not a JSON object")
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
    """Check that the voice has exactly the parts of its kind."""
    embedding, codes = tensors.speaker_embedding, tensors.reference_codes
    if (embedding is None) != (about.kind == "designed"):
        raise NotAVoiceFile(
            f"a speaker embedding belongs to every voice but a designed one; this voice is {about.kind}"
        )
    if embedding is not None and not np.isfinite(embedding).all():
        raise NotAVoiceFile("its speaker embedding has values that are not finite")
    if (codes is not None) != bool(about.transcript) or (codes is not None and about.kind != "cloned"):
        raise NotAVoiceFile("reference codes and a transcript belong together, to a cloned voice")
    if codes is not None and len(codes) > MAX_CODE_ROWS:
        raise NotAVoiceFile(f"{len(codes)} reference frames are over the limit of {MAX_CODE_ROWS}")
    if (about.kind == "designed") != bool(about.design):
        raise NotAVoiceFile("a designed voice needs its description, and other voices have none")

"""Writes JSON messages, with and without audio.

Base64 has no characters that JSON escapes, so audio is appended to the encoded fields before it. This takes a third of
the time of encoding the whole message. Pure.
"""

import binascii
import json
from typing import Any

_ENCODER = json.JSONEncoder(separators=(",", ":"))


class JsonText(bytes):
    """JSON in UTF-8, ready to be sent. On a WebSocket it is a text frame, while plain bytes are a binary frame."""


def json_text(message: dict[str, Any]) -> JsonText:
    return JsonText(_ENCODER.encode(message).encode())


def head_of(message: dict[str, Any], field: str) -> bytes:
    """The beginning of a message up to the audio, which will be in `field`; for `with_audio`."""
    return _ENCODER.encode({**message, field: ""})[:-2].encode()


def with_audio(head: bytes, data: bytes) -> JsonText:
    """The message with its audio, in base64, as the last field."""
    return JsonText(b"".join((head, binascii.b2a_base64(data, newline=False), b'"}')))

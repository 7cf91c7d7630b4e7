"""Reads and writes Wyoming's events: a line of JSON, then data and payload with the lengths given there. Limits
sizes."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from sonorant.gateway.errors import Refusal
from sonorant.gateway.web.json_input import decode

VERSION = "1.5.2"  # version of the protocol, as its library sends it
MAX_LINE_BYTES = 64 * 1024
MAX_DATA_BYTES = 256 * 1024
MAX_PAYLOAD_BYTES = 1024 * 1024  # audio for other kinds of services; it is discarded


class NotWyoming(Exception):
    """The other side sent something that is not an event, or too large an event."""


@dataclass(frozen=True, slots=True)
class WyomingEvent:
    type: str
    data: dict[str, Any] = field(default_factory=dict)
    payload: bytes = b""

    def to_bytes(self) -> bytes:
        data = json.dumps(self.data, ensure_ascii=False).encode() if self.data else b""
        head: dict[str, Any] = {"type": self.type, "version": VERSION}
        if data:
            head["data_length"] = len(data)
        if self.payload:
            head["payload_length"] = len(self.payload)
        return json.dumps(head).encode() + b"\n" + data + self.payload


async def read_event(reader: asyncio.StreamReader) -> WyomingEvent | None:
    """The next event, or None at the end. Raises NotWyoming."""
    try:
        line = await reader.readline()
        if not line.strip():
            return None
        head = _object(line)
        data = head.get("data") or {}
        if not isinstance(data, dict):
            raise ValueError("its data is not a JSON object")
        if data_length := _length(head, "data_length", MAX_DATA_BYTES):
            data = {**data, **_object(await reader.readexactly(data_length))}
        if payload_length := _length(head, "payload_length", MAX_PAYLOAD_BYTES):
            await reader.readexactly(payload_length)
    except asyncio.IncompleteReadError:
        return None
    except (ValueError, Refusal) as error:  # a line that is too long is a ValueError, too
        raise NotWyoming(f"not a Wyoming event: {error}") from None
    return WyomingEvent(str(head.get("type", "")), data)


def _object(data: bytes) -> dict[str, Any]:
    found = decode(data)
    if not isinstance(found, dict):
        raise ValueError("a JSON object is needed")
    return found


def _length(head: dict[str, Any], name: str, limit: int) -> int:
    value = head.get(name) or 0
    if type(value) is not int or not 0 <= value <= limit:
        raise ValueError(f"{name} is {str(value)[:20]}; it must be a whole number from 0 to {limit}")
    return value

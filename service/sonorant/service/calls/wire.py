"""Counts the parts of a large message from its bytes, before it is parsed. Pure.

A part is a field, however small. With a million of them in 8 MB, the parser runs for up to half a second and cannot be
interrupted. Counting can be, and honest messages have few parts: they are large because of recordings and codes.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from sonorant.service.errors import MalformedMessage

MAX_PARTS = 25_000  # a resumed utterance may have 4,096 segments of five parts each
PARTS_AT_ONCE = 1000
PACKED_BYTES = 64  # this many bytes of packed numbers count as one part
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def counted(data: bytes, message: Any) -> Iterator[bool]:
    """Yield True now and then until all parts are counted. Raises MalformedMessage if there are too many, or if the
    bytes are not a message. `message`: its descriptor.
    """
    try:
        yield from _counted(data, message)
    except IndexError:
        raise MalformedMessage("a request breaks off in the middle of a field") from None


def _counted(data: bytes, message: Any) -> Iterator[bool]:
    num_parts, at, pause_at = 0, 0, PARTS_AT_ONCE
    inside = [(len(data), _fields(message))]  # the open messages, outermost first: where each ends, and its fields
    while inside:
        end, fields = inside[-1]
        if at >= end:
            if at > end:
                raise MalformedMessage("a field of a request is longer than the message that contains it")
            inside.pop()
            continue
        tag, at = _varint(data, at)
        num_parts += 1
        match tag & 7:  # the wire type: 0 varint, 1 64 bits, 5 32 bits, 2 with a length
            case 0:
                _, at = _varint(data, at)
            case 1:
                at += 8
            case 5:
                at += 4
            case 2:
                length, at = _varint(data, at)
                field = fields.get(tag >> 3)
                if field is None:
                    at += length
                elif field.message_type is not None:
                    if at + length > end:
                        raise MalformedMessage("a field of a request is longer than the message that contains it")
                    inside.append((at + length, _fields(field.message_type)))
                else:
                    num_parts += length // PACKED_BYTES
                    at += length
            case kind:
                raise MalformedMessage(f"a field of a request has wire type {kind}, which this contract does not use")
        if num_parts > MAX_PARTS:
            raise MalformedMessage(f"a message of {len(data)} bytes has more than {MAX_PARTS} parts; send less at once")
        if num_parts >= pause_at:
            pause_at = num_parts + PARTS_AT_ONCE
            yield True


@cache
def _fields(message: Any) -> Mapping[int, Any]:
    """Return the fields that may hold more than one part, by number."""
    return {
        field.number: field
        for field in message.fields
        if field.message_type is not None or (field.is_repeated and field.type not in _TEXTS)
    }


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at `at`, and the index behind it."""
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    value, shift = byte & 127, 7
    for place in range(at + 1, at + 10):
        byte = data[place]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place + 1
        shift += 7
    raise MalformedMessage("a number in a request has more than ten bytes")

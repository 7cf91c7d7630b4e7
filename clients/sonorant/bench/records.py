"""The messages between the client processes and their parent: pickles over pipes, each after its length."""

import pickle
import struct
from typing import IO, Any

LENGTH = struct.Struct("<Q")


def packed(record: object) -> bytes:
    payload = pickle.dumps(record)
    return LENGTH.pack(len(payload)) + payload


def unpacked(payload: bytes) -> Any:
    return pickle.loads(payload)


def send(stream: IO[bytes], record: object) -> None:
    stream.write(packed(record))
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Return the next message, or None at the end of the stream."""
    header = stream.read(LENGTH.size)
    return unpacked(stream.read(*LENGTH.unpack(header))) if header else None

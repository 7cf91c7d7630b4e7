"""Reads recordings from data: URIs, a piece in each turn of the event loop: others have their turn in between."""

import asyncio
import binascii
import re
from urllib.parse import unquote_to_bytes

from sonorant.gateway.errors import Refusal

MAX_REF_AUDIO_BYTES = 8 * 1024 * 1024 - 64 * 1024  # the limit of a message to the server, less room for other fields
ONLY_DATA = (
    "only data: URIs are read (data:audio/wav;base64,...); links and files are not, so send the recording itself"
)
PIECE_CHARS = 64 * 1024  # decoded in well under a millisecond
_ESCAPE_BEGINS = re.compile(r"%.?\Z", re.DOTALL)


async def recording_in(uri: str, where: str) -> bytes:
    """Return the bytes of a data: URI. Raises Refusal."""
    if not uri:
        raise Refusal(400, f"{where}: empty; send a recording, or leave it out", param=where)
    head, comma, data = uri.partition(",")
    head = "".join(head.split())  # white space does not count there, either
    if not comma or not head.lower().startswith("data:") or not head.lower().endswith(";base64"):
        raise Refusal(400, f"{where}: {ONLY_DATA}", param=where)
    if len(data) > MAX_REF_AUDIO_BYTES * 4 // 3:
        raise Refusal(
            413,
            f"{where}: more than {MAX_REF_AUDIO_BYTES} bytes; send a shorter recording",
            param=where,
        )
    try:
        recording = await _forgiving(data)
    except (binascii.Error, ValueError):
        raise Refusal(400, f"{where}: the part after the comma is not base64", param=where) from None
    if not recording:
        raise Refusal(400, f"{where}: empty; send a recording, or leave it out", param=where)
    return recording


class DecodedUris:
    """The recordings of one request with many items, which mostly have the same: the latest one is decoded once."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._uri = ""
        self._found: bytes | Refusal = b""

    async def read(self, uri: str, where: str) -> bytes:
        """Do what `recording_in` does."""
        async with self._turn:
            if not uri or uri != self._uri:
                try:
                    self._found = await recording_in(uri, where)
                except Refusal as refusal:
                    self._found = refusal
                self._uri = uri
            found = self._found
        if isinstance(found, Refusal):
            raise found
        return found


async def _forgiving(data: str) -> bytes:
    """Decode base64 as browsers do: white space does not count, padding may be missing, and in a URI may be escaped."""
    recording, escaped, compact = bytearray(), "", b""
    for begin in range(0, len(data), PIECE_CHARS):
        if begin:
            await asyncio.sleep(0)
        escaped += data[begin : begin + PIECE_CHARS]
        is_last = begin + PIECE_CHARS >= len(data)
        cut = _ESCAPE_BEGINS.search(escaped)
        end = cut.start() if cut and not is_last else len(escaped)
        compact += b"".join(unquote_to_bytes(escaped[:end]).split())
        escaped = escaped[end:]
        # The last group may have padding, or lack it, so it waits for the end.
        whole = 0 if is_last else max(0, len(compact) - 4) // 4 * 4
        if b"=" in compact[:whole]:
            raise ValueError("padding in the middle")
        recording += binascii.a2b_base64(compact[:whole], strict_mode=True)
        compact = compact[whole:]
    without = compact.rstrip(b"=")
    return bytes(recording + binascii.a2b_base64(without + b"=" * (-len(without) % 4), strict_mode=True))

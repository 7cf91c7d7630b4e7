"""Puts Opus packets into the Ogg container (RFC 3533, RFC 7845), page by page; each page can be sent at once. Pure."""

import struct
import zlib
from collections.abc import Sequence

_VENDOR = b"sonorant"
_FIRST, _LAST = 0x02, 0x04
_REVERSED_BITS = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class OggOpusWriter:
    def __init__(self, serial: int) -> None:
        """`serial`: distinguishes this stream from others in the same file."""
        self._serial = serial
        self._num_pages = 0

    def headers(self, opus_head: bytes) -> bytes:
        """Return the two pages that come before any audio."""
        tags = b"OpusTags" + struct.pack("<I", len(_VENDOR)) + _VENDOR + struct.pack("<I", 0)
        return self._page([opus_head], 0, _FIRST) + self._page([tags], 0, 0)

    def page(self, packets: Sequence[bytes], end: int, *, last: bool = False) -> bytes:
        """Return a page. `end`: the position after its packets, in samples of 48 kHz; on the last page, where the sound
        ends.
        """
        return self._page(packets, end, _LAST if last else 0)

    def _page(self, packets: Sequence[bytes], end: int, flags: int) -> bytes:
        # A packet is stored as full segments of 255 bytes, and one shorter segment that ends it.
        lacing = b"".join(b"\xff" * (len(packet) // 255) + bytes([len(packet) % 255]) for packet in packets)
        head = struct.pack("<4sBBqIII", b"OggS", 0, flags, end, self._serial, self._num_pages, 0)
        page = head + bytes([len(lacing)]) + lacing + b"".join(packets)
        self._num_pages += 1
        return page[:22] + struct.pack("<I", crc(page)) + page[26:]


def crc(page: bytes) -> int:
    """Return Ogg's checksum: zlib's polynomial, but with the bits in reverse order and nothing inverted."""
    mirrored = zlib.crc32(page.translate(_REVERSED_BITS), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{mirrored:032b}"[::-1], 2)

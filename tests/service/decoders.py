"""What listeners make of encoded audio: FFmpeg's decoder of Opus, Ogg pages taken apart, G.711 by the letter."""

import struct
from collections.abc import Sequence

import av
import numpy as np

from sonorant.service.audio.ogg import crc
from tests.service.sounds import Samples


def decoded(packets: Sequence[bytes], rate_hz: int) -> Samples:
    """What a decoder makes of bare packets, its delay included."""
    decoder = av.AudioCodecContext.create("libopus", "r")
    decoder.sample_rate = rate_hz
    decoder.layout = "mono"
    decoder.open()
    frames = [frame.to_ndarray()[0] for packet in packets for frame in decoder.decode(av.Packet(packet))]
    samples = np.concatenate(frames)
    return samples if samples.dtype == np.int16 else np.rint(samples * 32_767).astype(np.int16)


def pages(stream: bytes) -> list[tuple[int, int, int, list[int]]]:
    """Flags, position, number and segment lengths of each Ogg page, its checksum verified."""
    found, at = [], 0
    while at < len(stream):
        magic, version, flags, position, _, number, checksum, count = struct.unpack_from("<4sBBqIIIB", stream, at)
        assert (magic, version) == (b"OggS", 0)
        lacing = list(stream[at + 27 : at + 27 + count])
        end = at + 27 + count + sum(lacing)
        page = stream[at:end]
        assert crc(page[:22] + bytes(4) + page[26:]) == checksum
        found.append((flags, position, number, lacing))
        at = end
    return found


def mulaw_level(code: int) -> int:
    """What ITU-T G.711 says a code stands for, in 16 bits."""
    code = ~code & 0xFF
    magnitude = (((code & 0xF) << 3) + 0x84 << (code >> 4 & 7)) - 0x84
    return -magnitude if code & 0x80 else magnitude


def alaw_level(code: int) -> int:
    code ^= 0x55
    exponent, mantissa = code >> 4 & 7, code & 0xF
    magnitude = (mantissa << 4) + 8 if exponent == 0 else (mantissa << 4) + 0x108 << exponent - 1
    return magnitude if code & 0x80 else -magnitude

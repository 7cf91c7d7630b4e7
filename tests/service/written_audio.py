"""What the audio writer makes of an utterance's samples."""

from collections.abc import Sequence

import numpy as np

from sonorant.service.audio.writer import AudioSpec, AudioWriter, Piece
from tests.service.sounds import Samples


def pieces_of(spec: AudioSpec, samples: Samples, where: Sequence[int] = (), flushes: Sequence[int] = ()) -> list[Piece]:
    """Of an utterance whose samples come in pieces, with a flush after some of them."""
    writer = AudioWriter(spec)
    pieces = writer.begin()
    for number, chunk in enumerate(np.split(samples, sorted(where))):
        pieces += writer.push(chunk)
        if number in flushes:
            pieces += writer.flush()
    return pieces + writer.end()


def joined(pieces: Sequence[Piece]) -> bytes:
    return b"".join(piece.data for piece in pieces)

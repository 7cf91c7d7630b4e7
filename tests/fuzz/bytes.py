"""Random changes to bytes that were good, as fuzzers without coverage make them."""

import random

_EDGES = (b"\0", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff" * 9 + b"\x01")


def mutated(data: bytes, rng: random.Random, most: int = 4) -> bytes:
    """Up to `most` changes: a bit, a number at an edge, a piece cut out, doubled or moved, an end cut off."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, most)):
        at = rng.randrange(len(changed) + 1)
        upto = min(len(changed), at + rng.choice((1, 2, 4, 16, 256)))
        match rng.randrange(6):
            case 0 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at : at + 4] = rng.choice(_EDGES)
            case 2:
                del changed[at:upto]
            case 3:
                changed[at:at] = changed[at:upto]
            case 4:
                piece = changed[at:upto]
                del changed[at:upto]
                to = rng.randrange(len(changed) + 1)
                changed[to:to] = piece
            case _:
                del changed[at:]
    return bytes(changed)

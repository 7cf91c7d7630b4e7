"""Codes as bytes: what goes in comes out, however it is cut into records; what is no such bytes is refused in words."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.service.audio.codes import (
    FRAMES_AT_ONCE,
    MAX_COUNT,
    RECORDS_AT_ONCE,
    CodesHeader,
    Kind,
    join,
    parse,
    parsing,
    record,
)

PUBLISHED = CodesHeader(16, 11, 24_000, 1920, "0123456789abcdef", "fedcba9876543210")
headers = st.builds(
    CodesHeader,
    num_codebooks=st.integers(1, 20),
    bits=st.integers(1, 15),
    sample_rate_hz=st.sampled_from([8_000, 24_000]),
    frame_samples=st.sampled_from([640, 1920]),
    codec=st.binary(min_size=8, max_size=8).map(bytes.hex),
    checkpoint=st.binary(min_size=8, max_size=8).map(bytes.hex),
)
# (segment, frames) or a pause in ms
scripts = st.lists(st.one_of(st.integers(1, 5000), st.tuples(st.just("segment"), st.integers(1, 30))), max_size=6)


def frames(header: CodesHeader, count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 1 << header.bits, (count, header.num_codebooks)).astype(np.int16)


@given(header=headers, num_past=st.integers(0, 9), script=scripts, cuts=st.lists(st.integers(1, 7)))
def test_what_goes_in_comes_out(header: CodesHeader, num_past: int, script: list, cuts: list[int]) -> None:
    data = [header.to_bytes()]
    past = frames(header, num_past)
    if num_past:
        data[0] += record(Kind.PAST, num_past, header.pack(past))
    parts: list = []
    for index, item in enumerate(script):
        if isinstance(item, int):
            parts.append(item)
            data.append(record(Kind.PAUSE, item))
            continue
        codes = frames(header, item[1], index)
        parts.append(codes)
        one_by_one = [
            record(Kind.FRAMES if number else Kind.SEGMENT, 1, header.pack(frame[None]))
            for number, frame in enumerate(codes)
        ]
        while one_by_one:  # joined as messages join them
            size = cuts[len(data) % len(cuts)] if cuts else len(one_by_one)
            data.append(join(one_by_one[:size]))
            one_by_one = one_by_one[size:]
    stored = parse(b"".join(data))
    assert stored.header == header
    assert (stored.past is None) == (num_past == 0)
    if stored.past is not None:
        np.testing.assert_array_equal(stored.past, past)
    assert len(stored.parts) == len(parts)
    for found, expected in zip(stored.parts, parts, strict=True):
        np.testing.assert_array_equal(found, expected)
        assert isinstance(found, int) == isinstance(expected, int)


def test_a_frame_of_a_published_checkpoint_has_22_bytes() -> None:
    codes = frames(PUBLISHED, 45_000)  # an hour
    assert PUBLISHED.frame_bytes == 22 and len(PUBLISHED.to_bytes()) == 32
    one_by_one = [record(Kind.FRAMES, 1, PUBLISHED.pack(frame[None])) for frame in codes]
    chunks = [join(one_by_one[start : start + 12]) for start in range(0, len(one_by_one), 12)]
    size = len(PUBLISHED.to_bytes()) + sum(map(len, chunks))
    assert 172 < 45_000 * 1920 * 2 / size < 174


def test_joining_stops_where_a_count_would_not_fit() -> None:
    one_by_one = [record(Kind.SEGMENT, 1, PUBLISHED.pack(frames(PUBLISHED, 1)))]
    one_by_one += [record(Kind.FRAMES, 1, PUBLISHED.pack(frames(PUBLISHED, 1)))] * MAX_COUNT
    (segment,) = parse(PUBLISHED.to_bytes() + join(one_by_one)).segments
    assert len(segment) == MAX_COUNT + 1


FRAME = record(Kind.SEGMENT, 1, PUBLISHED.pack(frames(PUBLISHED, 1)))
WHOLE = PUBLISHED.to_bytes() + FRAME


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "do not begin with SNRC"),
        (b"RIFF" + WHOLE[4:], "do not begin with SNRC"),
        (WHOLE[:20], "20 bytes are not even a header"),
        (WHOLE[:4] + b"\2" + WHOLE[5:], "of version 2"),
        (WHOLE[:5] + b"\0" + WHOLE[6:], "0 codebooks"),
        (WHOLE[:6] + b"\x10" + WHOLE[7:], "of 16 bits"),
        (WHOLE[:-1], "the first 32 bytes are whole"),
        (WHOLE + WHOLE, f"another utterance begins at byte {len(WHOLE)}"),
        (WHOLE + WHOLE + bytes(100_000), "another utterance begins"),
        (WHOLE + FRAME[:1], f"the first {len(WHOLE)} bytes are whole"),
        (PUBLISHED.to_bytes() + record(Kind.PAST, 0) * 100_001, "over 100000 records"),
        (PUBLISHED.to_bytes() + record(Kind.PAUSE, 1) * 4097, "over 4096 segments and pauses"),
        (PUBLISHED.to_bytes() + record(Kind.SEGMENT, 0) * 4097, "over 4096 segments and pauses"),
        (PUBLISHED.to_bytes() + record(Kind.PAUSE, 16_000) * 226, "longer than 3600 s"),
    ],
)
def test_what_is_no_codes_is_refused_in_words(data: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse(data)


@given(st.binary(max_size=200), st.integers(0, len(WHOLE)))
def test_noise_is_parsed_or_refused(noise: bytes, kept: int) -> None:
    with suppress(ValueError):
        parse(WHOLE[:kept] + noise)


def test_many_records_are_read_in_steps() -> None:
    """Between which the event loop does what is due."""
    num_frames = 4 * FRAMES_AT_ONCE
    frames = PUBLISHED.pack(np.arange(num_frames * 16, dtype=np.int16).reshape(-1, 16) % 2048)
    size = PUBLISHED.frame_bytes
    records = [record(Kind.FRAMES, 1, frames[at : at + size]) for at in range(0, len(frames), size)]
    *steps, stored = parsing(PUBLISHED.to_bytes() + b"".join(records))
    assert steps == [None] * (num_frames // RECORDS_AT_ONCE + num_frames // FRAMES_AT_ONCE)
    assert stored is not None and PUBLISHED.pack(stored.segments[0]) == frames

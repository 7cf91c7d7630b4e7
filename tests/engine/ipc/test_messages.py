"""Every record comes out of its bytes as it went in."""

import inspect
import re
import struct
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sonorant.engine.ipc import channel, messages, opening, ring, shared_channels
from sonorant.engine.ipc.messages import (
    BeginStream,
    CancelStream,
    EndStream,
    EndText,
    FirstChunk,
    FlushStream,
    FrameBatch,
    GrantCredit,
    OpenStream,
    PcmBatch,
    PushText,
    Record,
    Shutdown,
    SilentStream,
    TextPositions,
    decode,
    encode,
)
from sonorant.engine.types import FinishReason, PromptPlan, SamplingParams, StreamEnd
from tests.fakes import frame_batch

stream_ids = st.integers(0, 2**63 - 1)
ids = st.integers(-(2**31), 2**31 - 1)
counts = st.integers(0, 2**32 - 1)
seconds = st.floats(0, 1e9)
SAMPLING = SamplingParams(True, 0.9, 50, 1.0, 1.05, False, 0.8, 0, 0.5, 2**32 - 1, 2, 2000, True)


def int16(*shape: int) -> st.SearchStrategy[Any]:
    return arrays.arrays(np.int16, shape)


@st.composite
def batches(draw: st.DrawFn) -> Record:
    rows, frames, width = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 7))
    row_ids = draw(arrays.arrays(np.int64, rows))
    indices = draw(arrays.arrays(np.int32, rows))
    if draw(st.booleans()):
        places = draw(arrays.arrays(np.float32, rows, elements=st.floats(0, 9, width=32)))
        return TextPositions(row_ids, indices, places)
    if draw(st.booleans()):
        return FrameBatch(row_ids, indices, draw(int16(rows, width)), draw(seconds), draw(seconds))
    return PcmBatch(row_ids, indices, frames, draw(int16(rows, frames * width)), draw(int16(rows, frames, 3)))


@st.composite
def openings(draw: st.DrawFn) -> OpenStream:
    rows = draw(st.lists(st.tuples(ids, ids), min_size=1, max_size=20))
    text_ids, codec_items = zip(*rows, strict=True)
    trailing, text_ended = tuple(draw(st.lists(ids, max_size=9))), draw(st.booleans())
    plan = PromptPlan(text_ids, codec_items, trailing, text_ended, draw(counts), draw(counts), draw(st.booleans()))
    x_vector = draw(st.none() | arrays.arrays(np.float32, 8, elements=st.floats(-9, 9, width=32)))
    codes = draw(st.none() | int16(3, 4))
    known = draw(st.none() | int16(0, 4) | int16(2, 4))
    return OpenStream(
        draw(stream_ids),
        plan,
        draw(st.sampled_from([SAMPLING, replace(SAMPLING, do_sample=False, ignore_eos=False, subtalker_top_k=7)])),
        draw(counts),
        draw(seconds),
        x_vector,
        codes,
        known,
        times_text_from=draw(st.none() | seconds),
        caller=draw(st.integers(0, 2**56 - 1)),
        in_turn=draw(st.booleans()),
        is_background=draw(st.booleans()),
    )


ends = st.builds(StreamEnd, st.sampled_from(FinishReason), st.integers(0, 2**31), seconds, seconds, st.text())
records: st.SearchStrategy[Record] = st.one_of(
    openings(),
    batches(),
    st.builds(PushText, stream_ids, st.lists(ids, max_size=20).map(tuple)),
    st.builds(GrantCredit, stream_ids, counts),
    st.builds(
        BeginStream,
        stream_ids,
        seconds,
        seconds,
        st.none() | int16(5, 3),
        st.integers(0, 5),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(EndStream, stream_ids, ends),
    st.builds(FirstChunk, stream_ids, *[seconds] * 7),
    st.builds(SilentStream, stream_ids, counts),
    st.builds(EndText, stream_ids),
    st.builds(CancelStream, stream_ids),
    st.builds(FlushStream, stream_ids, st.booleans()),
    st.just(Shutdown()),
)


@given(records)
def test_round_trip(record: Record) -> None:
    decoded = decode(memoryview(b"".join(encode(record))))
    assert type(decoded) is type(record)
    for name in record.__slots__:
        np.testing.assert_equal(getattr(decoded, name), getattr(record, name))


@given(batches())
def test_decoded_arrays_are_our_own(record: Record) -> None:
    buffer = bytearray(b"".join(encode(record)))
    decoded = decode(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    for name in record.__slots__:
        np.testing.assert_equal(getattr(decoded, name), getattr(record, name))
    assert decoded.stream_ids.flags.writeable


def test_arrays_that_are_not_contiguous() -> None:
    codes = np.arange(24, dtype=np.int16).reshape(4, 6)[:, ::2]
    decoded = decode(memoryview(b"".join(encode(frame_batch(range(4), [0] * 4, codes)))))
    assert isinstance(decoded, FrameBatch)
    np.testing.assert_array_equal(decoded.codes, codes)


def test_a_wrong_dtype_is_refused() -> None:
    with pytest.raises(TypeError, match="array of float32 where the ring carries int16"):
        encode(
            PcmBatch(
                np.zeros(1, np.int64),
                np.zeros(1, np.int32),
                1,
                np.zeros((1, 4), np.float32),
                np.zeros((1, 1, 2), np.int16),
            )
        )


@given(records, st.integers(0, 15), st.binary(max_size=300), st.integers(0, 300))
def test_no_bytes_run_code(record: Record, kind: int, noise: bytes, position: int) -> None:
    """A reader of a ring takes values of known types, or raises ValueError, KeyError or the like: nothing is imported
    or called by its name, whatever a compromised worker writes."""
    data = b"".join(encode(record))
    evil = b"\x80\x04c" + b"os\nsystem\n" + b"X\x04\x00\x00\x00exit\x85R."
    for changed in (
        data[:position] + noise + data[position + len(noise) :],
        kind.to_bytes(4, "little") + data[4:],
        kind.to_bytes(4, "little") + bytes(12) + evil,
    ):
        with suppress(ValueError, TypeError, OverflowError, IndexError, struct.error):
            decode(memoryview(changed))


def test_no_ring_carries_a_pickle() -> None:
    """Whoever reads a ring never loads modules by what it carries."""
    read_by_service = (messages, opening, channel, ring, shared_channels)
    for module in read_by_service:
        source = inspect.getsource(module)
        assert not re.search(r"\b(pickle|marshal|eval|exec)\b", source), module.__name__


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind 99"):
        decode((99).to_bytes(4, "little") + bytes(12))

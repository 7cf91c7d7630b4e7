"""The record that opens a stream, and its layout: it has more parts than all others together.

OPEN, f32 speaker embedding, i32 text ids, codec items and trailing ids,
i16 reference codes and known codes [frames, codebooks]
"""

import math
import struct
from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sonorant.engine.types import Float32Array, Int16Array, PromptPlan, SamplingParams

Buffer = bytes | bytearray | memoryview

# credit_frames, opened_s, times_text_from (NaN: None), caller; then the flags in_turn, is_background, text_ended,
# began_open, do_sample, subtalker_do_sample, ignore_eos; then how many values of the embedding, prompt rows,
# trailing ids, reference frames and known frames follow (-1: no such array); num_text_tokens, text_row; the numbers
# of SamplingParams, in order
OPEN = struct.Struct("=q2dq 7q 5q 2q dq2d dqd 3q")


@dataclass(frozen=True, slots=True)
class OpenStream:
    stream_id: int  # never reused
    plan: PromptPlan
    sampling: SamplingParams
    credit_frames: int
    opened_s: float  # all times are of CLOCK_MONOTONIC, which the processes of a host share
    x_vector: Float32Array | None = None  # [hidden]
    reference_codes: Int16Array | None = None  # [frames, codebooks]
    # [frames, codebooks] of frames made earlier; the stream continues after them. Credit and `max_frames` count them,
    # and the plan's trailing text still begins at frame 0.
    known_codes: Int16Array | None = None
    times_text_from: float | None = None  # send TextPositions, which begin about here; None: send none
    caller: int = 0  # slots and KV pages are shared out among callers; 0: no particular caller
    in_turn: bool = False  # admitted by turns of callers, even behind known codes
    is_background: bool = False  # nobody listens to it yet, so it gives way to all others


def raw(values: npt.NDArray[Any], dtype: type[np.generic]) -> memoryview:
    """Return a view of the array's memory. Raises TypeError for another dtype: the dtype is part of the layout."""
    if values.dtype != dtype:
        raise TypeError(f"array of {values.dtype} where the ring carries {np.dtype(dtype)}")
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def opening_bytes(record: OpenStream) -> tuple[int, list[Buffer]]:
    """Return the number of codebooks, which goes into the record's header, and the body."""
    plan, sampling = record.plan, record.sampling
    arrays = (record.x_vector, record.reference_codes, record.known_codes)
    num_values, num_reference, num_known = (-1 if array is None else len(array) for array in arrays)
    codebooks = next((codes.shape[1] for codes in arrays[1:] if codes is not None), 0)
    opened = OPEN.pack(
        *(record.credit_frames, record.opened_s),
        *(math.nan if record.times_text_from is None else record.times_text_from, record.caller),
        *(record.in_turn, record.is_background, plan.text_ended, plan.began_open),
        *(sampling.do_sample, sampling.subtalker_do_sample, sampling.ignore_eos),
        *(num_values, len(plan.text_ids), len(plan.trailing), num_reference, num_known),
        *(plan.num_text_tokens, plan.text_row),
        *(sampling.temperature, sampling.top_k, sampling.top_p, sampling.repetition_penalty),
        *(sampling.subtalker_temperature, sampling.subtalker_top_k, sampling.subtalker_top_p),
        *(sampling.seed, sampling.min_frames, sampling.max_frames),
    )
    ids = array("i", (*plan.text_ids, *plan.codec_items, *plan.trailing))
    return codebooks, [
        opened,
        b"" if record.x_vector is None else raw(record.x_vector, np.float32),
        ids.tobytes(),
        *(raw(codes, np.int16) for codes in arrays[1:] if codes is not None),
    ]


def opening(body: bytearray, codebooks: int, stream_id: int) -> OpenStream:
    credit_frames, opened_s, times_text_from, caller, *rest = OPEN.unpack_from(body)
    in_turn, is_background, text_ended, began_open, do_sample, subtalker_do_sample, ignore_eos = map(bool, rest[:7])
    num_values, num_rows, num_trailing, num_reference, num_known = rest[7:12]
    position = OPEN.size

    def array_of(dtype: type[np.generic], num_values: int) -> npt.NDArray[Any]:
        nonlocal position
        values = np.frombuffer(body, dtype, num_values, position)
        position += values.nbytes
        return values

    def codes_of(num_frames: int) -> Int16Array | None:
        return array_of(np.int16, num_frames * codebooks).reshape(num_frames, codebooks) if num_frames >= 0 else None

    x_vector = array_of(np.float32, num_values) if num_values >= 0 else None
    text_ids, codec_items, trailing = (
        tuple(array_of(np.int32, count).tolist()) for count in (num_rows, num_rows, num_trailing)
    )
    num_text_tokens, text_row = rest[12:14]
    temperature, top_k, top_p, repetition_penalty, *predictor_and_counts = rest[14:]
    predictor_temperature, predictor_top_k, predictor_top_p, seed, min_frames, max_frames = predictor_and_counts
    sampling = SamplingParams(
        *(do_sample, temperature, top_k, top_p, repetition_penalty),
        *(subtalker_do_sample, predictor_temperature, predictor_top_k, predictor_top_p),
        *(seed, min_frames, max_frames, ignore_eos),
    )
    return OpenStream(
        stream_id,
        PromptPlan(text_ids, codec_items, trailing, text_ended, num_text_tokens, text_row, began_open),
        sampling,
        *(credit_frames, opened_s, x_vector, codes_of(num_reference), codes_of(num_known)),
        times_text_from=None if math.isnan(times_text_from) else times_text_from,
        caller=caller,
        in_turn=in_turn,
        is_background=is_background,
    )

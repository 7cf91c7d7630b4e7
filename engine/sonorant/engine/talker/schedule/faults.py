"""Finds values that a stream cannot be run with, before they can do harm.

A value out of range would fail a whole step or, on CUDA, the whole process with all its streams. Found here, it only
ends the stream that it came with. Requests of clients are checked by the service; this finds what is not visible there,
such as a tokenizer or a stored voice of another checkpoint.
"""

from collections.abc import Sequence

import numpy as np

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.ipc.messages import OpenStream
from sonorant.engine.types import LARGEST_VALUE, NO_ID, REFERENCE_FRAME, X_VECTOR


def fault_of_stream(command: OpenStream, checkpoint: Checkpoint) -> str:
    """Return why the stream cannot be run, or an empty string."""
    plan, talker = command.plan, checkpoint.talker
    if not 0 < plan.num_rows == len(plan.codec_items):
        return f"the prompt has {plan.num_rows} text rows and {len(plan.codec_items)} codec rows"
    for what, codes in (("reference", command.reference_codes), ("known", command.known_codes)):
        if codes is not None and (fault := checkpoint.fault_of_codes(codes)):
            return f"{what} codes {fault}"
    num_reference_frames = 0 if command.reference_codes is None else len(command.reference_codes)
    num_known_frames = 0 if command.known_codes is None else len(command.known_codes)
    if num_known_frames > command.sampling.max_frames:
        return f"{num_known_frames} frames are known, max_frames is {command.sampling.max_frames}"
    if not plan.text_ended and num_known_frames > len(plan.trailing):
        return f"{num_known_frames} frames are known, but text for {len(plan.trailing)} only; send all of it again"
    if (x_vector := command.x_vector) is not None:
        if x_vector.shape != (talker.stack.hidden_size,):
            return f"the x-vector has shape {x_vector.shape}, the checkpoint needs [{talker.stack.hidden_size}]"
        if not (np.abs(x_vector) <= LARGEST_VALUE).all():  # NaN compares as False
            return f"the x-vector has values that are not finite, or beyond {LARGEST_VALUE:g}"
    elif X_VECTOR in plan.codec_items:
        return "the prompt has a row for an x-vector, but no x-vector came with it"
    return (
        fault_of_ids("text", plan.text_ids, NO_ID, talker.text_vocab_size)
        or fault_of_ids("text", plan.trailing, 0, talker.text_vocab_size)
        or fault_of_ids("codec", plan.codec_items, REFERENCE_FRAME - num_reference_frames + 1, talker.vocab_size)
    )


def fault_of_ids(kind: str, ids: Sequence[int], lowest: int, limit: int) -> str:
    """Return why these ids of the `text` or `codec` table cannot be used, or an empty string."""
    if ids and (min(ids) < lowest or max(ids) >= limit):
        return f"{kind} ids must lie in {lowest} .. {limit - 1}, but are {min(ids)} .. {max(ids)}"
    return ""

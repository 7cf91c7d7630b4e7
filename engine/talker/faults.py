"""What makes one stream unusable, found before it can do harm.

A value out of range would end a whole step, and on CUDA the whole process, and every stream with it. Here it ends the
stream that it came with. What callers send is checked at the door; this is for what cannot be seen there, such as a
tokenizer or a stored voice that belongs to another checkpoint.
"""

from collections.abc import Sequence

import numpy as np

from engine.checkpoint import Checkpoint
from engine.ipc.messages import OpenStream
from engine.types import NO_ID, REFERENCE_FRAME, X_VECTOR


def fault_of_stream(command: OpenStream, checkpoint: Checkpoint) -> str:
    """Why the stream cannot be run, or an empty string."""
    plan, talker = command.plan, checkpoint.talker
    if not 0 < plan.num_rows == len(plan.codec_items):
        return f"the prompt has {plan.num_rows} text rows and {len(plan.codec_items)} codec rows"
    num_reference_frames = 0
    if (codes := command.reference_codes) is not None:
        if codes.dtype != np.int16 or codes.ndim != 2 or codes.shape[1] != talker.num_codebooks or not len(codes):
            return f"reference codes are {codes.dtype} {codes.shape}, wanted is int16 [frames, {talker.num_codebooks}]"
        num_codes = checkpoint.code_predictor.vocab_size
        if codes.min() < 0 or codes.max() >= num_codes:
            return f"reference codes must lie in 0 .. {num_codes - 1}, there are {codes.min()} .. {codes.max()}"
        num_reference_frames = len(codes)
    if (x_vector := command.x_vector) is not None:
        if x_vector.shape != (talker.stack.hidden_size,):
            return f"the x-vector has shape {x_vector.shape}, wanted is [{talker.stack.hidden_size}]"
        if not np.isfinite(x_vector).all():
            return "the x-vector has values that are not finite"
    elif X_VECTOR in plan.codec_items:
        return "the prompt has a row for an x-vector, and none came with it"
    return (
        fault_of_ids("text", plan.text_ids, NO_ID, talker.text_vocab_size)
        or fault_of_ids("text", plan.trailing, 0, talker.text_vocab_size)
        or fault_of_ids("codec", plan.codec_items, REFERENCE_FRAME - num_reference_frames + 1, talker.vocab_size)
    )


def fault_of_ids(kind: str, ids: Sequence[int], lowest: int, limit: int) -> str:
    """Why these ids of the `text` or `codec` table cannot be used, or an empty string."""
    if ids and (min(ids) < lowest or max(ids) >= limit):
        return f"{kind} ids must lie in {lowest} .. {limit - 1}, there are {min(ids)} .. {max(ids)}"
    return ""

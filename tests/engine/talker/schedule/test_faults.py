from dataclasses import replace

import numpy as np
import pytest

from sonorant.engine.ipc.messages import OpenStream
from sonorant.engine.talker.schedule.faults import fault_of_stream
from sonorant.engine.types import REFERENCE_FRAME, X_VECTOR
from tests.fakes import open_stream, published_checkpoint

CHECKPOINT = published_checkpoint()
GOOD = open_stream(1, trailing=(5, 6), num_reference_frames=2)


def with_plan(**changes: tuple[int, ...]) -> OpenStream:
    return replace(GOOD, plan=replace(GOOD.plan, **changes))


def test_a_good_stream_has_no_fault() -> None:
    x_vector = np.zeros(2048, np.float32)
    plan = replace(GOOD.plan, codec_items=(-1, X_VECTOR, REFERENCE_FRAME, REFERENCE_FRAME - 1, 0, 0, 0, 0, 3071))
    assert fault_of_stream(replace(GOOD, plan=plan, x_vector=x_vector), CHECKPOINT) == ""


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (with_plan(text_ids=(), codec_items=()), "0 text rows"),
        (with_plan(codec_items=(1,)), "9 text rows and 1 codec rows"),
        (with_plan(text_ids=(200_000,) * 9), "text ids must lie in"),
        (with_plan(trailing=(-1,)), "text ids must lie in"),
        (with_plan(codec_items=(3072,) * 9), "codec ids must lie in"),
        (with_plan(codec_items=(REFERENCE_FRAME - 2,) * 9), "codec ids must lie in -4"),
        (with_plan(codec_items=(X_VECTOR,) * 9), "no x-vector came with it"),
        (replace(GOOD, reference_codes=np.zeros((2, 15), np.int16)), "needs int16 (frames, 16)"),
        (replace(GOOD, reference_codes=np.zeros((2, 16), np.int64)), "int64"),
        (replace(GOOD, reference_codes=np.full((2, 16), 2048, np.int16)), "0 to 2047"),
        (replace(GOOD, x_vector=np.zeros(7, np.float32)), "needs [2048]"),
        (replace(GOOD, x_vector=np.full(2048, np.nan, np.float32)), "not finite"),
        (replace(GOOD, x_vector=np.full(2048, 1e5, np.float32)), "beyond 65504"),
        (replace(GOOD, known_codes=np.zeros((1, 15), np.int16)), "known codes are int16 of shape (1, 15)"),
        (
            replace(GOOD, known_codes=np.full((1, 16), -1, np.int16)),
            "known codes run from -1 to -1",
        ),
        (replace(GOOD, known_codes=np.zeros((21, 16), np.int16)), "21 frames are known, max_frames is 20"),
        (replace(GOOD, known_codes=np.zeros((3, 16), np.int16)), "3 frames are known, but text for 2 only"),
    ],
)
def test_faults(command: OpenStream, fault: str) -> None:
    assert fault in fault_of_stream(command, CHECKPOINT)

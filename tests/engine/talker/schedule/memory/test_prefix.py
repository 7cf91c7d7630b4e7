"""Keys of pages: equal where rows are equal, down to the vectors that stand beside the ids, and nowhere else."""

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.ipc.messages import OpenStream
from sonorant.engine.talker.schedule.memory.prefix import page_keys
from sonorant.engine.types import NO_ID, REFERENCE_FRAME, X_VECTOR, PromptPlan
from tests.fakes import open_stream

PAGE_SIZE = 4
NUM_REFERENCE_FRAMES = 3

# One row of everything that rows are made of: a text id, and a codec id, the speaker embedding or a reference frame.
rows = st.tuples(
    st.sampled_from([NO_ID, 7, 8]),
    st.sampled_from([NO_ID, X_VECTOR, 7, *(REFERENCE_FRAME - k for k in range(NUM_REFERENCE_FRAMES))]),
)
x_vectors = st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=2).map(lambda x: np.array(x, np.float32))
references = st.lists(st.integers(0, 1), min_size=6, max_size=6).map(lambda x: np.array(x, np.int16).reshape(3, 2))
prompts = st.lists(rows, min_size=1, max_size=14)


def command(prompt: list[tuple[int, int]], x_vector: object, reference: object) -> OpenStream:
    plan = PromptPlan(*map(tuple, zip(*prompt, strict=True)), trailing=(), text_ended=True, num_text_tokens=1)  # type: ignore[arg-type]
    return dataclasses.replace(open_stream(1), plan=plan, x_vector=x_vector, reference_codes=reference)


def keys_of(command: OpenStream, page_size: int) -> tuple[bytes, ...]:
    return page_keys(command.plan, command.x_vector, command.reference_codes, page_size)


def content(command: OpenStream, num_rows: int) -> list[tuple[int, bytes]]:
    """What the first rows are made of, in full."""
    found = []
    for text_id, item in list(zip(command.plan.text_ids, command.plan.codec_items, strict=True))[:num_rows]:
        if item == X_VECTOR:
            assert command.x_vector is not None
            found.append((text_id, command.x_vector.tobytes()))
        elif item <= REFERENCE_FRAME:
            assert command.reference_codes is not None
            found.append((text_id, command.reference_codes[REFERENCE_FRAME - item].tobytes() + bytes([-item])))
        else:
            found.append((text_id, str(item).encode()))
    return found


@given(prompts, prompts, st.integers(0, 14), x_vectors, x_vectors, references, references)
def test_pages_have_equal_keys_if_and_only_if_all_before_their_end_is_equal(
    one: list[tuple[int, int]],
    tail: list[tuple[int, int]],
    num_common: int,
    x_one: object,
    x_other: object,
    reference_one: object,
    reference_other: object,
) -> None:
    first = command(one, x_one, reference_one)
    second = command(one[:num_common] + tail, x_other, reference_other)
    keys_first, keys_second = keys_of(first, PAGE_SIZE), keys_of(second, PAGE_SIZE)
    assert len(keys_first) == len(one) // PAGE_SIZE
    assert len(set(keys_first)) == len(keys_first)
    for page, (key_first, key_second) in enumerate(zip(keys_first, keys_second, strict=False)):
        stop = (page + 1) * PAGE_SIZE
        assert (key_first == key_second) == (content(first, stop) == content(second, stop))


def test_a_prompt_without_vectors_has_keys() -> None:
    (key,) = keys_of(open_stream(1, num_rows=9), 8)
    assert key == keys_of(open_stream(1, num_rows=12), 8)[0] != keys_of(open_stream(2, num_rows=9), 8)[0]

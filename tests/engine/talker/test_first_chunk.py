"""When the talker waits for the codec, and when it does not."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from sonorant.engine.ipc.heartbeat import Heartbeat, Step
from sonorant.engine.talker import first_chunk
from sonorant.engine.talker.first_chunk import FEW_ROWS, FirstChunkWait
from sonorant.engine.types import PassCounts

FIRST = Step(num_rows=1, num_prompt_rows=9)


class Sent:
    is_read = False


@pytest.fixture
def codec() -> Iterator[Heartbeat]:
    with closing(Heartbeat()) as heartbeat:
        yield heartbeat


def test_the_next_step_waits_until_the_codec_has_read_and_decoded(
    codec: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_chunk, "MAX_WAIT_S", 60.0)
    sent, seen = Sent(), list[str]()

    def decode() -> None:
        time.sleep(0.01)  # the talker waits meanwhile; were this shorter, nothing would be wrong
        codec.busy()
        sent.is_read = True
        seen.append("read")
        time.sleep(0.01)
        seen.append("decoded")
        codec.idle(Step(1), PassCounts())

    thread = threading.Thread(target=decode)
    thread.start()
    FirstChunkWait(sent, codec)(FIRST)
    assert seen == ["read", "decoded"]
    thread.join()


def test_a_codec_that_hangs_holds_nobody_up(codec: Heartbeat) -> None:
    codec.busy()
    FirstChunkWait(Sent(), codec)(FIRST)


@pytest.mark.parametrize("step", [Step(1), Step(0), Step(FEW_ROWS + 1, num_prompt_rows=9)])
def test_nobody_waits_without_a_first_frame_or_among_many(
    step: Step, codec: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_chunk, "MAX_WAIT_S", float("inf"))
    FirstChunkWait(Sent(), codec)(step)

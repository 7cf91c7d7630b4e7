"""When the talker waits for the codec, and when it does not."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from sonorant.engine.ipc.heartbeat import Heartbeat, Step
from sonorant.engine.talker.first_chunk import FEW_ROWS, CodecTurn, FirstChunkWait
from sonorant.engine.types import PassCounts

FIRST = Step(num_rows=1, num_prompt_rows=9)


class Sent:
    is_read = False


@pytest.fixture
def codec() -> Iterator[Heartbeat]:
    with closing(Heartbeat()) as heartbeat:
        yield heartbeat


@pytest.mark.parametrize(("wait", "step"), [(FirstChunkWait, FIRST), (CodecTurn, FIRST), (CodecTurn, Step(40))])
def test_the_next_step_waits_until_the_codec_has_read_and_decoded(
    wait: type[CodecTurn], step: Step, codec: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "most_s", 60.0)
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
    wait(sent, codec)(step)
    assert seen == ["read", "decoded"]
    thread.join()


@pytest.mark.parametrize("wait", [FirstChunkWait, CodecTurn])
def test_a_codec_that_hangs_holds_nobody_up(
    wait: type[CodecTurn], codec: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "most_s", 0.01)
    codec.busy()
    wait(Sent(), codec)(FIRST)


@pytest.mark.parametrize("step", [Step(1), Step(0), Step(FEW_ROWS + 1, num_prompt_rows=9)])
def test_nobody_waits_without_a_first_frame_or_among_many(
    step: Step, codec: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FirstChunkWait, "most_s", float("inf"))
    FirstChunkWait(Sent(), codec)(step)

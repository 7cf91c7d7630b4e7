"""Pairs that share a GPU admit no more streams together than it can make in time. No workers are started."""

from typing import cast

import pytest

from sonorant.engine import BUILTIN_VOICE_DIR, Engine, EngineConfig, EngineState
from sonorant.engine.ipc.handed import Packets
from sonorant.engine.owner.board import Board
from sonorant.engine.owner.link_messages import PairState, Welcome
from sonorant.engine.serving.model import Model
from sonorant.engine.serving.owner_link import OwnerLink

CONFIG = EngineConfig.of(BUILTIN_VOICE_DIR, num_slots=300, max_queued_streams=200)
CODEC = {"frame_s": 1e-9}
FAST = {
    "talker": {"step_s": {1: 0.001, 1000: 0.056}},
    "code2wav": CODEC,
}  # 1,000 streams within 70 % of a frame's 80 ms
SLOW = {"talker": {"step_s": {1: 0.001, 100: 0.056}}, "code2wav": CODEC}


@pytest.fixture
def engines() -> list[Engine]:
    model = Model.read(CONFIG)
    pair = PairState(0, EngineState.STARTING, "", {}, None)
    link = OwnerLink(cast("Packets", None), Welcome(0, 0, Board(), (pair,), (False,)))
    fast, slow = (Engine(CONFIG, model, lambda engine: None, link) for _ in range(2))
    for engine, other, facts in ((fast, slow, FAST), (slow, fast, SLOW)):
        engine.neighbours = [other]
        engine.state = EngineState.READY
        engine._measured(facts)
    return [fast, slow]


def give(engine: Engine, num_streams: int) -> None:
    engine._places.num_taken = num_streams


def test_an_idle_neighbour_takes_nothing(engines: list[Engine]) -> None:
    fast, slow = engines
    assert (fast.max_streams, slow.max_streams) == (500, pytest.approx(100, abs=1)), "500: slots and queue"


def test_neighbours_leave_what_their_streams_do_not_need(engines: list[Engine]) -> None:
    fast, slow = engines
    give(slow, 75)
    assert fast.max_streams == pytest.approx(250, abs=12), "a quarter of 1,000"
    give(fast, 200)
    assert slow.max_streams == pytest.approx(80, abs=2)


def test_streams_of_a_pair_that_is_down_need_no_time(engines: list[Engine]) -> None:
    """They may continue on the neighbour."""
    fast, slow = engines
    give(slow, 75)
    slow.state = EngineState.RESTARTING
    assert fast.max_streams == 500


def test_a_pair_can_be_warmed_up_beside_a_full_neighbour(engines: list[Engine]) -> None:
    fast, slow = engines
    give(slow, 100)
    assert fast.max_streams == 1


def test_all_slots_of_a_pair_need_only_the_time_that_they_take(engines: list[Engine]) -> None:
    """A pair with few slots cannot measure how many streams the GPU bears, only how long those take."""
    fast, slow = engines
    few = {"talker": {"step_s": {1: 0.001, 60: 0.014}}, "code2wav": CODEC}  # a quarter of the time for 60 streams
    slow._measured(few)
    assert slow.max_streams == 60, "nobody is let in beyond what was measured"
    give(slow, 60)
    assert fast.max_streams == 500, "three quarters of 1,000 would be 750"
    give(fast, 500)
    assert slow.max_streams == 60, "a half of 240 would be 120"


@pytest.mark.parametrize(("bounds", "most"), [(True, 3), (False, 500)])
def test_a_large_checkpoint_on_a_cpu_admits_whom_it_serves_in_time(
    engines: list[Engine], *, bounds: bool, most: int
) -> None:
    """A small one is not bounded: its talker and Code2Wav are not all that takes time."""
    told = {"device": "cpu", "in_turns": False, "bounds_streams": bounds}
    engines[0]._measured({"talker": {"step_s": {1: 0.02, 8: 0.04}, **told}, "code2wav": {"frame_s": 0.016}})
    assert (engines[0].max_streams, engines[0].info.real_time_factor) == (most, pytest.approx(0.25))
    assert engines[1].max_streams == pytest.approx(100, abs=1), "the neighbour has cores of its own"


def test_one_that_serves_nobody_in_time_takes_those_who_do_not_listen(engines: list[Engine]) -> None:
    told = {"device": "cpu", "in_turns": True, "bounds_streams": True}
    engines[0]._measured({"talker": {"step_s": {1: 0.08}, **told}, "code2wav": {"frame_s": 0.04}})
    assert (engines[0].max_streams, engines[0].info.real_time_factor) == (500, pytest.approx(1.5))


def test_without_measurements_only_slots_and_queue_count(engines: list[Engine]) -> None:
    fast, slow = engines
    fast._most_in_time = slow._most_in_time = None
    give(slow, 400)
    assert fast.max_streams == 500

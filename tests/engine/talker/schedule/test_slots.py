import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sonorant.engine.talker.schedule.slots import TRANSITIONS, SlotState, SlotTable

NUM_SLOTS = 3


def test_the_table_is_the_documented_one() -> None:
    free, prefill, decode, starved, blocked = SlotState
    assert {
        free: {prefill},
        prefill: {decode, free},
        decode: {starved, blocked, free},
        starved: {decode, free},
        blocked: {decode, starved, free},
    } == TRANSITIONS


def test_an_illegal_move_says_what_it_was() -> None:
    slots = SlotTable(NUM_SLOTS)
    slot = slots.take()
    with pytest.raises(RuntimeError, match=r"slot 0 cannot go from PREFILL to STARVED"):
        slots.move(slot, SlotState.STARVED)
    assert slots.state(slot) is SlotState.PREFILL


class Slots(RuleBasedStateMachine):
    """Any sequence of moves, against a plain dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = SlotTable(NUM_SLOTS)
        self.model = dict.fromkeys(range(NUM_SLOTS), SlotState.FREE)

    @precondition(lambda self: SlotState.FREE in self.model.values())
    @rule()
    def take(self) -> None:
        slot = self.slots.take()
        assert self.model[slot] is SlotState.FREE
        self.model[slot] = SlotState.PREFILL

    @rule(slot=st.integers(0, NUM_SLOTS - 1), state=st.sampled_from(SlotState))
    def move(self, slot: int, state: SlotState) -> None:
        if self.model[slot] is SlotState.FREE:
            return  # only `take` chooses among free slots
        if state in TRANSITIONS[self.model[slot]]:
            self.slots.move(slot, state)
            self.model[slot] = state
        else:
            with pytest.raises(RuntimeError):
                self.slots.move(slot, state)

    @invariant()
    def agrees_with_the_model(self) -> None:
        assert {slot: self.slots.state(slot) for slot in self.model} == self.model
        assert self.slots.num_free == list(self.model.values()).count(SlotState.FREE)
        assert self.slots.num_free + self.slots.num_used == NUM_SLOTS
        self.slots.check_conservation()


TestSlots = Slots.TestCase
TestSlots.settings = settings(max_examples=40, stateful_step_count=30)

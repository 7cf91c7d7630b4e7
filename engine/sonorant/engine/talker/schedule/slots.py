"""The slot table: which slots of the talker are taken, and the state of each. Knows nothing of streams or the model.

    FREE -> PREFILL -> DECODE <-> STARVED (no text to feed)
                              <-> BLOCKED (no credit)
    any live state -> FREE      (end, cancel or failure)

There is no draining state. A step is applied before the next command is read, so no step is running when a slot is
given back, and frames that Code2Wav still has to decode are in one of its own slots.
"""

from collections.abc import Mapping
from enum import IntEnum


class SlotState(IntEnum):
    FREE = 0
    PREFILL = 1
    DECODE = 2
    STARVED = 3
    BLOCKED = 4


TRANSITIONS: Mapping[SlotState, frozenset[SlotState]] = {
    SlotState.FREE: frozenset({SlotState.PREFILL}),
    # The last prompt row samples frame 0, which may use up the credit, or all the text there is.
    SlotState.PREFILL: frozenset({SlotState.DECODE, SlotState.FREE}),
    SlotState.DECODE: frozenset({SlotState.STARVED, SlotState.BLOCKED, SlotState.FREE}),
    # A stream that lacks both text and credit is BLOCKED: without credit it could not use text.
    SlotState.STARVED: frozenset({SlotState.DECODE, SlotState.FREE}),
    SlotState.BLOCKED: frozenset({SlotState.DECODE, SlotState.STARVED, SlotState.FREE}),
}


class SlotTable:
    """States of `num_slots` slots and the list of free ones."""

    def __init__(self, num_slots: int) -> None:
        self._states = [SlotState.FREE] * num_slots
        self._free = list(reversed(range(num_slots)))

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return len(self._states) - len(self._free)

    def state(self, slot: int) -> SlotState:
        return self._states[slot]

    def take(self) -> int:
        """Take a free slot, move it to PREFILL and return it. The caller must have checked `num_free`."""
        slot = self._free.pop()
        self.move(slot, SlotState.PREFILL)
        return slot

    def move(self, slot: int, state: SlotState) -> None:
        """Change the state of a slot. Raises RuntimeError for a change that is not in TRANSITIONS, which is a bug."""
        before = self._states[slot]
        if state not in TRANSITIONS[before]:
            raise RuntimeError(f"slot {slot} cannot go from {before.name} to {state.name}")
        self._states[slot] = state
        if state is SlotState.FREE:
            self._free.append(slot)

    def check_conservation(self) -> None:
        """Raise RuntimeError unless as many slots are FREE as are on the list of free slots."""
        num_free = self._states.count(SlotState.FREE)
        if num_free != len(self._free):
            raise RuntimeError(
                f"slots leaked: {num_free} of {len(self._states)} are FREE, {len(self._free)} on the list"
            )

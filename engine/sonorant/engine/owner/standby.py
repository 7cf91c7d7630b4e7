"""Decides which pairs of a checkpoint are on standby. Pure."""

from collections.abc import Sequence
from typing import Protocol

from sonorant.engine.workers.state import EngineState


class StandbyPair(Protocol):
    state: EngineState
    is_standby: bool


def assign_standbys(pairs: Sequence[StandbyPair]) -> None:
    """Let a standby that is ready replace a pair that is not; that pair becomes a standby.

    Every server process does so after each change of a pair, and the owner of the workers, too. They see the changes
    in the same order, so they come to the same result.
    """
    for pair in pairs:
        ready = [each for each in pairs if each.is_standby and each.state is EngineState.READY]
        if not pair.is_standby and pair.state is not EngineState.READY and ready:
            pair.is_standby, ready[0].is_standby = True, False

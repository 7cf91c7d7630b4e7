"""This process as one of the fronts that use the same worker pairs; it may be the only one."""

from collections.abc import Callable

from sonorant.engine.ipc.front_ids import new_ids
from sonorant.engine.owner.board import Board, Entry


class Front:
    def __init__(
        self,
        board: Board,
        number: int = 0,
        generation: int = 0,
        tell_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`tell_room` tells the other fronts that there is room for what waits."""
        self.ids = new_ids(number, generation)  # of streams and runs
        self._board = board
        self._number = number
        self._is_alone = board.num_fronts == 1
        self._tell_room = tell_room

    def entry(self, pair: int) -> Entry:
        """What this front, and the others, have taken of a pair."""
        return Entry(self._board, pair, self._number)

    def set_waiting(self, waits: bool) -> None:
        """Note whether streams wait for room that another front may give up. Look for room after this, not before."""
        if not self._is_alone:
            self._board.set_waiting(self._number, waits)

    def room_freed(self) -> None:
        """A place that this front had is free, as the board says already."""
        if not self._is_alone and self._board.any_waits(but=self._number):
            self._tell_room()

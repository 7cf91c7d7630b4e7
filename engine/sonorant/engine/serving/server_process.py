"""This server process among those that use the same worker pairs; it may be the only one."""

from collections.abc import Callable

from sonorant.engine.ipc.server_ids import new_ids
from sonorant.engine.owner.board import Board, Entry


class ServerProcess:
    def __init__(
        self,
        board: Board,
        number: int = 0,
        generation: int = 0,
        tell_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`tell_room` tells the other server processes that there is room for what waits."""
        self.ids = new_ids(number, generation)  # of streams and runs
        self._board = board
        self._number = number
        self._is_alone = board.num_servers == 1
        self._tell_room = tell_room

    def entry(self, pair: int) -> Entry:
        """What this server process, and the others, have taken of a pair."""
        return Entry(self._board, pair, self._number)

    def set_waiting(self, waits: bool) -> None:
        """Note whether streams wait for room that others may give up. Look for room after this, not before."""
        if not self._is_alone:
            self._board.set_waiting(self._number, waits)

    def room_freed(self) -> None:
        """A place that this server process had is free, as the board says already."""
        if not self._is_alone and self._board.any_waits(but=self._number):
            self._tell_room()

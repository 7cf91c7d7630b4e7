"""How much of a text is spoken: a bar below all other lines, on a terminal. Elsewhere only those lines are written."""

import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

WIDTH = 30
_USUAL_COLUMNS = 80  # of a terminal that does not say
_CLEAR = "\r\x1b[K"


class Progress:
    """Counts characters, of several pieces of a text at the same time."""

    def __init__(self, num_chars: int, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`num_chars`: of the whole text; 0 = there is no bar. `out`: stderr, if it is not given."""
        self._num_chars = num_chars
        self._out = sys.stderr if out is None else out
        self._clock = clock
        self._begin_s = clock()
        self._num_spoken = 0  # of pieces that are over
        self._reached: dict[int, int] = {}  # by piece, of those that are being spoken
        self._bar = ""  # as it stands there
        self.is_shown = num_chars > 0 and self._out is not None and self._out.isatty()

    def reach(self, piece: int, num_chars: int) -> None:
        """So much of a piece is spoken."""
        self._reached[piece] = num_chars
        self._draw()

    def end(self, piece: int, num_chars: int) -> None:
        """A piece is over, which has so many characters."""
        self._reached.pop(piece, None)
        self._num_spoken += num_chars
        self._draw()

    def note(self, line: str) -> None:
        """Write a line above the bar."""
        if self._bar:
            line, self._bar = _CLEAR + line, ""
        print(line, file=self._out, flush=True)
        self._draw()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar:
            self._bar = ""
            print(_CLEAR, end="", file=self._out, flush=True)
        self.is_shown = False

    def time_left(self) -> str:
        """Say about how long the rest will take; "" if that is not known or if there is none."""
        num_spoken = self._num_spoken + sum(self._reached.values())
        if not 0 < num_spoken < self._num_chars:
            return ""
        left_s = (self._clock() - self._begin_s) * (self._num_chars - num_spoken) / num_spoken
        return f"  about {left_s / 60:.0f} min left" if left_s >= 90 else f"  about {left_s:.0f} s left"

    def _draw(self) -> None:
        if not self.is_shown:
            return
        share = min(1.0, (self._num_spoken + sum(self._reached.values())) / self._num_chars)
        figures = f"{int(share * 100):3}%{self.time_left()}"
        bar = f"[{'#' * int(share * WIDTH):{WIDTH}}] {figures}"
        if len(bar) >= (columns := self._columns()):  # a terminal would go on in its next line, and keep this one
            bar = figures[: columns - 1]
        if bar != self._bar:
            self._bar = bar
            print(f"{_CLEAR}{bar}", end="", file=self._out, flush=True)

    def _columns(self) -> int:
        assert self._out is not None
        try:
            return os.get_terminal_size(self._out.fileno()).columns or _USUAL_COLUMNS
        except OSError:
            return _USUAL_COLUMNS

"""A bar says how far a text is, on terminals only; every other line stays whole."""

import io
import os
import re
import termios

from sonorant.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """The lines that can be read in the end."""
        return [re.sub(r".*\r\x1b\[K", "", line) for line in self.getvalue().split("\n")]


def test_the_bar_grows_below_the_notes_and_goes() -> None:
    now = [0.0]
    out = Terminal()
    progress = Progress(200, out, lambda: now[0])
    progress.note("begun")
    assert out.screen() == ["begun", f"[{'':30}]   0%"]
    now[0] = 100.0
    progress.reach(1, 40)
    progress.reach(2, 10)
    assert out.screen()[-1] == f"[{'#' * 7:30}]  25%  about 5 min left"
    progress.end(1, 100)
    progress.note("1 is over")
    assert out.screen() == ["begun", "1 is over", f"[{'#' * 16:30}]  55%  about 82 s left"]
    progress.end(2, 100)
    assert out.screen()[-1] == f"[{'#' * 30}] 100%"
    progress.close()
    progress.reach(2, 100)
    progress.note("all is over")
    assert out.screen() == ["begun", "1 is over", "all is over", ""]


def test_what_did_not_change_is_not_drawn_again() -> None:
    out = Terminal()
    progress = Progress(10_000, out, lambda: 0.0)
    for num_chars in range(1, 100):
        progress.reach(1, num_chars)
    assert out.getvalue().count("\r") == 1


def test_there_is_no_bar_in_a_file_and_none_without_a_known_text() -> None:
    for out, num_chars in ((io.StringIO(), 100), (Terminal(), 0)):
        progress = Progress(num_chars, out)
        progress.reach(1, 50)
        progress.note("so")
        progress.close()
        assert out.getvalue() == "so\n"


def test_on_a_narrow_terminal_it_stays_on_its_line() -> None:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 16))
    with os.fdopen(ours, "rb") as seen, os.fdopen(theirs, "w") as out:
        progress = Progress(200, out, iter((0.0, 100.0)).__next__)
        progress.reach(1, 50)
        assert seen.read(19) == b"\r\x1b[K 25%  about 5 m"

"""The program `sonorant`. Ctrl-C ends it without a traceback at any time, even while it is starting."""

import io
import os
import signal
import sys


def main() -> None:
    _fill_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a console or a file may take fewer characters than texts have
        sys.stdout.reconfigure(errors="backslashreplace")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the command reports each error once, in its own words
    # Importing takes half a second. Until then Ctrl-C simply ends the process, without a KeyboardInterrupt in an
    # import.
    usual = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from sonorant.cli import main as command

    signal.signal(signal.SIGINT, usual)
    try:
        command.main()
    except KeyboardInterrupt:
        sys.exit(130)


def _fill_closed_streams() -> None:
    """Open /dev/null for each standard stream that is closed. Otherwise a connection could get the number of stdout,
    and without a stderr, messages for people would be printed into the audio."""
    while (free := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(free)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


if __name__ == "__main__":
    main()

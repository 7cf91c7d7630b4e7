"""`sonorant`, as a program: ended by Ctrl-C without a traceback from its first moment on."""

import os
import signal
import sys


def main() -> None:
    _fill_closed_streams()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what went wrong is told once, in words
    # Importing takes half a second: until then as for any program, and no KeyboardInterrupt out of an import.
    usual = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from sonorant.cli import main as command

    signal.signal(signal.SIGINT, usual)
    try:
        command.main()
    except KeyboardInterrupt:
        sys.exit(130)


def _fill_closed_streams() -> None:
    """Whoever starts a program may close its streams. A connection would then be given the number of stdout, and what
    is for people, without a stderr, would be printed into the audio."""
    while (free := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(free)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


if __name__ == "__main__":
    main()

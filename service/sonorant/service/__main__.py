"""The entry point of `sonorant-server`. Ctrl-C ends it without a traceback at any time, even during the imports."""

import os
import signal
import sys


def main() -> None:
    # The imports take most of a second. Meanwhile Ctrl-C kills the process, instead of raising from inside an import.
    usual = signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The C core of gRPC writes a line to stderr for each frame that it cannot read, and attackers send many.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from sonorant.service import command

    signal.signal(signal.SIGINT, usual)
    try:
        command.main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

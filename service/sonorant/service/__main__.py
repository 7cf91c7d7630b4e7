"""`sonorant-server`, as a program: ended by Ctrl-C without a traceback from its first moment on."""

import os
import signal
import sys


def main() -> None:
    # Importing takes most of a second: until then as for any program, and no KeyboardInterrupt out of an import.
    usual = signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The C core of gRPC writes a line to stderr for each frame that makes no sense to it: attackers send many.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from sonorant.service import process

    signal.signal(signal.SIGINT, usual)
    try:
        process.main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

"""`sonorant-gateway`, as a program: ended by Ctrl-C without a traceback from its first moment on."""

import signal
import sys


def main() -> None:
    # Importing takes most of a second: until then as for any program, and no KeyboardInterrupt out of an import.
    usual = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from sonorant.gateway import main as program

    signal.signal(signal.SIGINT, usual)
    try:
        program.main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

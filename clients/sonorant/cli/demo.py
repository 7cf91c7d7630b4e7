"""The program of `make demo`. Ctrl-C ends it without a traceback at any time, even while it is starting."""

import signal


def main() -> None:
    # Importing takes half a second. Until then Ctrl-C simply ends the process, without a KeyboardInterrupt in an
    # import.
    usual = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from sonorant.cli import demonstration

    signal.signal(signal.SIGINT, usual)
    demonstration.main()


if __name__ == "__main__":
    main()

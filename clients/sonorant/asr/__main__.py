"""The program `python -m sonorant.asr`. Ctrl-C ends it without a traceback at any time, even while it is starting."""

import signal


def main() -> None:
    # Importing takes half a second. Until then Ctrl-C simply ends the process, without a KeyboardInterrupt in an
    # import.
    usual = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from sonorant.asr import main as program

    signal.signal(signal.SIGINT, usual)
    program.main()


if __name__ == "__main__":
    main()

"""`make demo`, as a program: ended by Ctrl-C without a traceback from its first moment on."""

import signal


def main() -> None:
    # Importing takes half a second: until then as for any program, and no KeyboardInterrupt out of an import.
    usual = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from sonorant.cli import demonstration

    signal.signal(signal.SIGINT, usual)
    demonstration.main()


if __name__ == "__main__":
    main()

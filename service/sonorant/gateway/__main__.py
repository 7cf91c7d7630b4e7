"""`sonorant-gateway`, as a program: ended by Ctrl-C without a traceback from its first moment on."""

import os
import signal
import sys


def main() -> None:
    # Importing takes most of a second: until then as for any program, and no KeyboardInterrupt out of an import.
    usual = signal.signal(signal.SIGINT, signal.SIG_DFL)
    # gRPC's newer way of reading from a client's socket takes two more threads to each message: a fifth of its cost.
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_for_all_other_endpoints")
    try:
        from sonorant.gateway import main as program
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("sonorant"):
            raise
        sys.exit(f"sonorant-gateway: {error.name} is not installed: pip install 'sonorant-server[gateway]'")

    signal.signal(signal.SIGINT, usual)
    try:
        program.main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

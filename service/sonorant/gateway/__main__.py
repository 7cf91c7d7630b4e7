"""The program `sonorant-gateway`. Ctrl-C ends it without a traceback at any time, even while it is starting."""

import os
import signal
import sys

from sonorant.hosting.early_signals import end_at_signals


def main() -> None:
    usual = signal.getsignal(signal.SIGINT)
    end_at_signals()
    # gRPC's newer way to read from a client's socket uses two more threads per message, which is a fifth of its cost.
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

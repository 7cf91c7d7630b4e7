"""The entry point of `sonorant-server`. Ctrl-C ends it without a traceback at any time, even during the imports."""

import os
import signal
import sys
from contextlib import nullcontext

from sonorant import logs
from sonorant.engine import WORKERS
from sonorant.hosting.early_signals import end_at_signals
from sonorant.hosting.streams import open_standard_streams
from sonorant.logs import start


def main() -> None:
    usual = signal.getsignal(signal.SIGINT)
    end_at_signals()
    # The C core of gRPC writes a line to stderr for each frame that it cannot read, and attackers send many.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    serves = all(argument.startswith("-") for argument in sys.argv[1:2])  # and does not run a subcommand
    if serves:
        open_standard_streams()
        logs.set_up()
        start.begin("server")
    # What workers import takes longer than everything else before they can load: it is under way from now on.
    with WORKERS.ahead() if serves else nullcontext():
        from sonorant.service import command

        start.phase("imports")
        signal.signal(signal.SIGINT, usual)
        try:
            command.main()
        except KeyboardInterrupt:
            sys.exit(130)


if __name__ == "__main__":
    main()

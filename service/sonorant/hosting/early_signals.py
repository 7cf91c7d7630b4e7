"""What signals do to a program while it imports its modules, which takes longer than a second on a busy machine."""

import os
import signal
from types import FrameType


def end_at_signals() -> None:
    """Let these signals end the process at once, without a traceback from inside an import, until something else
    handles them. Those that are ignored stay so, as nohup asks for."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # Linux spares the first process of a container, which has no handler

"""Runs a program of asyncio until it ends, or until Ctrl-C or SIGTERM."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any

INTERRUPTED = 130  # exit status


def run_until_signal(main: Coroutine[Any, Any, int]) -> int:
    """asyncio.run() for a program: its `finally` blocks run after the first signal, and no
    KeyboardInterrupt breaks them off: the second signal ends the process at once. Return the exit status."""
    interrupted = False

    async def until_signal() -> int:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def interrupt(*_: Any) -> None:
            nonlocal interrupted
            if interrupted:
                os._exit(INTERRUPTED)
            interrupted = True
            loop.call_soon_threadsafe(task.cancel)

        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, interrupt)
        return await main

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return asyncio.run(until_signal())
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED
    finally:
        if not interrupted:
            for number, handler in before.items():
                signal.signal(number, handler)

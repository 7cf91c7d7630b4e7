"""Which call the running code belongs to, for what is said about it in logs and decided about it in checks.

Set once, at the beginning of a call, and inherited by the tasks that it starts.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace

from sonorant.service.access.api_keys import ANYONE, Caller


@dataclass(frozen=True, slots=True)
class CallContext:
    request_id: str = ""
    session_id: str = ""
    caller: Caller = ANYONE


_current: ContextVar[CallContext] = ContextVar("call", default=CallContext())  # noqa: B039  frozen


def current() -> CallContext:
    return _current.get()


def enter(context: CallContext) -> None:
    _current.set(context)


def enter_session(session_id: str) -> None:
    """From now on; the request id and the caller stay."""
    _current.set(replace(_current.get(), session_id=session_id))


def when_over(callback: Callable[[object], None]) -> None:
    """Have it called once the call is over, however that happens; for the call's own task.

    gRPC's `add_done_callback` does the same, but ties all that the callback holds into a cycle with the call, for a
    collection of the oldest generation to find: a session's worth of objects each time.
    """
    task = asyncio.current_task()
    assert task is not None, "a call runs in a task"
    task.add_done_callback(callback)

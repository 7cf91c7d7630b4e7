"""The call that the running code belongs to: its ids, for logs, and its caller, for checks.

It is set once, at the beginning of a call, and inherited by the tasks that the call starts.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar
from dataclasses import dataclass, replace

from sonorant.service.access.api_keys import ANYONE, Caller


@dataclass(frozen=True, slots=True)
class CallContext:
    request_id: str = ""
    session_id: str = ""
    caller: Caller = ANYONE
    host: str = ""  # where the call comes from
    forwarded_for: str = ""  # whom a gateway or proxy says that it calls for
    arrived_s: float = 0.0  # on the monotonic clock


_current: ContextVar[CallContext] = ContextVar("call", default=CallContext())  # noqa: B039  frozen


def current() -> CallContext:
    return _current.get()


def who(context: Context) -> str:
    """Return whose steps those of this context are: an API key's name or, without keys, a host; "" = no call's."""
    call = context.get(_current)
    return "" if call is None else call.caller.name or call.host


def enter(context: CallContext) -> None:
    _current.set(context)


def enter_session(session_id: str) -> None:
    """Set the session id of the current call; the request id and the caller stay."""
    _current.set(replace(_current.get(), session_id=session_id))


def on_call_end(callback: Callable[[object], None]) -> None:
    """Register a callback for the end of the current call, however it ends. Must run in the call's own task.

    gRPC's `add_done_callback` does the same, but makes a reference cycle of the call and all that the callback holds. A
    whole session's objects would then stay until a full garbage collection.
    """
    task = asyncio.current_task()
    assert task is not None, "a call runs in a task"
    task.add_done_callback(callback)

"""Which call the running code belongs to, for what is said about it in logs and decided about it in checks.

Set once, at the beginning of a call, and inherited by the tasks that it starts.
"""

from contextvars import ContextVar
from dataclasses import dataclass, replace

from service.api_keys import ANYONE, Caller


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

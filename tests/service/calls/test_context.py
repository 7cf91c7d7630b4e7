"""Whose steps those of a context are."""

from contextvars import Context

from sonorant.service.access.api_keys import Caller
from sonorant.service.calls import context as call_context
from sonorant.service.calls.context import CallContext


def whose(call: CallContext | None) -> str:
    context = Context()
    if call is not None:
        context.run(call_context.enter, call)
    return call_context.who(context)


def test_steps_are_a_keys_or_else_a_hosts_or_nobodys() -> None:
    assert whose(None) == ""
    assert whose(CallContext(host="ipv4:127.0.0.1")) == "ipv4:127.0.0.1"
    assert whose(CallContext(caller=Caller("agent"), host="ipv4:127.0.0.1")) == "agent"


def test_they_stay_so_once_the_session_has_an_id() -> None:
    context = Context()
    context.run(call_context.enter, CallContext(host="ipv4:10.0.0.1"))
    context.run(call_context.enter_session, "s")
    assert call_context.who(context) == "ipv4:10.0.0.1"

"""Filters of the server's log: they drop gRPC's noise and add the ids of the current call to each record."""

import logging

from sonorant.service.calls import context as call_context


def _add_ids(record: logging.LogRecord) -> bool:
    """Add the ids of the current call, except those that the record already has."""
    call = call_context.current()
    for name, value in (
        ("request_id", call.request_id),
        ("session_id", call.session_id),
        ("caller", call.caller.name),
    ):
        if value and not hasattr(record, name):
            setattr(record, name, value)
    return True


def is_news(record: logging.LogRecord) -> bool:
    """Return False for gRPC's errors about a client that left during a write, or sent metadata that is not text.

    gRPC logs each with a traceback. Only the client could fix them, and any client could fill a disk with them.
    """
    if record.name != "grpc._cython.cygrpc" or not record.exc_info or record.exc_info[0] is None:
        return True
    return record.exc_info[0].__name__ not in ("ExecuteBatchError", "UnicodeDecodeError")


LOG_FILTERS = (is_news, _add_ids)

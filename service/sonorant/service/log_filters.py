"""Which records are worth a line in the server's log, and which call each is about."""

import logging

from sonorant.service.calls import context as call_context


def _add_ids(record: logging.LogRecord) -> bool:
    """Of the call that the record was made in, unless whoever made it gave them."""
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
    """Not what gRPC makes of a client that left while it was written to, or sent metadata that is no text.

    Each is an error with a traceback to gRPC, and nothing that anyone but the client could mend; any client could fill
    a disk with them.
    """
    if record.name != "grpc._cython.cygrpc" or not record.exc_info or record.exc_info[0] is None:
        return True
    return record.exc_info[0].__name__ not in ("ExecuteBatchError", "UnicodeDecodeError")


LOG_FILTERS = (is_news, _add_ids)

"""One JSON object per line on stderr. What people wrote or hear is never logged, only its size."""

import json
import logging
import sys
import time
from typing import TextIO

from sonorant.service.calls import context as call_context

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _JsonFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__()
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _OWN},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


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


def json_handler(stream: TextIO) -> logging.Handler:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonFormatter())
    handler.addFilter(is_news)
    handler.addFilter(_add_ids)
    return handler


def set_up() -> None:
    logging.captureWarnings(True)
    logging.basicConfig(level=logging.INFO, handlers=[json_handler(sys.stderr)])

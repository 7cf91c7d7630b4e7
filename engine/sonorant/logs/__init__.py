"""Logs of all processes of the server and of the gateway: one JSON object per line on stderr.

Text and audio are never logged, only their sizes.
"""

import json
import logging
import sys
from collections.abc import Callable
from time import gmtime, strftime
from typing import TextIO

_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = strftime("%Y-%m-%dT%H:%M:%S", gmtime(record.created))
        line = {
            "time": f"{time}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _OWN},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encode(line)


def json_handler(stream: TextIO, *filters: Callable[[logging.LogRecord], bool]) -> logging.Handler:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonFormatter())
    for each in filters:
        handler.addFilter(each)
    return handler


def set_up(*filters: Callable[[logging.LogRecord], bool], level: int = logging.INFO) -> None:
    """Set up the logging of this process, Python warnings included. A filter may drop a record or add fields to it."""
    logging.captureWarnings(True)
    # Do not look up threads, processes and source lines for every record, as no line shows them. `_srcfile` is
    # documented in the "Optimization" section of Python's "Logging HOWTO".
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    logging.basicConfig(level=level, handlers=[json_handler(sys.stderr, *filters)], force=True)

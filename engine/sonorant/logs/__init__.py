"""Logs of all processes of the server and of the gateway: one JSON object per line on stderr.

Text and audio are never logged, only their sizes.
"""

import json
import logging
from collections.abc import Callable
from time import gmtime, strftime
from typing import TextIO

from sonorant.logs.output import Output

_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_STDERR_FILENO = 2
_LOST = "%d lines of this process's log before this one are lost: nobody read them, or there was no room for them"


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


class _StderrHandler(logging.Handler):
    """Lines that stderr does not take at once are lost; how many is told once it takes one again."""

    def __init__(self) -> None:
        super().__init__()
        self._stderr = Output(_STDERR_FILENO)
        self._num_lost = 0
        self._unfinished = b""  # ends the line of which stderr took only a part

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._num_lost:
                lost = {"name": __name__, "levelname": "WARNING", "msg": _LOST, "args": (self._num_lost,)}
                self._write(logging.makeLogRecord(lost))
                self._num_lost = 0
            self._write(record)
        except OSError:
            self._num_lost += 1
        except Exception:
            self.handleError(record)

    def _write(self, record: logging.LogRecord) -> None:
        line = self._unfinished + f"{self.format(record)}\n".encode(errors="backslashreplace")
        self._unfinished = b"\n" if self._stderr.write(line) < len(line) else b""

    def close(self) -> None:
        self._stderr.close()
        super().close()


def json_handler(stream: TextIO | None, *filters: Callable[[logging.LogRecord], bool]) -> logging.Handler:
    """`stream`: None for stderr."""
    handler = logging.StreamHandler(stream) if stream else _StderrHandler()
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
    logging.basicConfig(level=level, handlers=[json_handler(None, *filters)], force=True)

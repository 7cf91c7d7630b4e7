"""Which records are worth a line in the gateway's log."""

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

# UnicodeEncodeError: aiohttp repeats an `Expect` that is no text. In handlers it is answered by `edge`.
# ConnectionError: they hung up before the answer.
_OF_STRANGERS = (HttpProcessingError, web.RequestPayloadError, UnicodeEncodeError, ConnectionError)


def is_news(record: logging.LogRecord) -> bool:
    """Not what aiohttp makes of what is no HTTP: an error with a traceback, and with bytes of the request, which may be
    somebody's key, or of who has gone. Any stranger could fill a disk with them."""
    error = record.exc_info[1] if record.exc_info else None
    return record.name != "aiohttp.server" or not isinstance(error, _OF_STRANGERS)

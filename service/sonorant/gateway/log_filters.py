"""Decides which records go into the gateway's log."""

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

# UnicodeEncodeError: aiohttp repeats an `Expect` header that is not text. In handlers, `edge` answers it.
# ConnectionError: the caller hung up before the answer.
_OF_STRANGERS = (HttpProcessingError, web.RequestPayloadError, UnicodeEncodeError, ConnectionError)


def is_news(record: logging.LogRecord) -> bool:
    """Return False for aiohttp's records about callers who hung up or sent something other than HTTP. These have a
    traceback and bytes of the request, which may be a key, and any stranger could fill a disk with them."""
    error = record.exc_info[1] if record.exc_info else None
    return record.name != "aiohttp.server" or not isinstance(error, _OF_STRANGERS)

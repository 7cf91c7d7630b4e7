"""What a stranger can bring about is no line in the log; what is a fault of ours is one."""

import logging

import pytest
from aiohttp import web
from aiohttp.client_exceptions import ClientConnectionResetError
from aiohttp.http_exceptions import BadHttpMessage

from sonorant.gateway.log_filters import is_news


def record(error: Exception | None, logger: str = "aiohttp.server") -> logging.LogRecord:
    info = (type(error), error, None) if error is not None else None
    return logging.LogRecord(logger, logging.ERROR, __file__, 1, "Error handling request", None, info)


@pytest.mark.parametrize(
    "error",
    [
        BadHttpMessage("Invalid header value char"),
        web.RequestPayloadError("Can not decode content-encoding: gzip"),
        UnicodeEncodeError("utf-8", "\udcb1", 0, 1, "surrogates not allowed"),  # of an `Expect`
        ClientConnectionResetError("Cannot write to closing transport"),  # gone while a WebSocket was accepted
    ],
)
def test_mistakes_of_strangers_are_no_news(error: Exception) -> None:
    assert not is_news(record(error))
    assert is_news(record(error, "sonorant.gateway.web.edge")), "of ours they are"


def test_anything_else_is() -> None:
    assert is_news(record(ValueError("a bug"))) and is_news(record(None))

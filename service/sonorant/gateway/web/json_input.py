"""Reads the JSON of callers, with so many limits that no message holds up the others. Pure."""

import json
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sonorant.gateway.errors import Refusal

Body = TypeVar("Body", bound=BaseModel)

MAX_VALUES = 70_000  # in one message: 32 texts with an embedding of 2,048 numbers each
MAX_ESCAPES = 400_000  # a recording of 8 MiB with all slashes escaped has half as many
MAX_EMBEDDING = 8192  # numbers; four times as many as known speaker encoders have
MAX_DIGITS = 40  # of a number; reading one takes time that grows with their square
MAX_NAME_CHARS = 512  # of a field with a name, such as a voice's
MAX_TEXT_CHARS = 256 * 1024  # of any other text; a server allows fewer
MAX_UINT32 = 2**32 - 1  # largest value of the server's fields
HALF_A_PAIR = "half of a surrogate pair is not a character; send whole pairs"

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def decode(data: bytes | str) -> Any:
    """Parse JSON. Raises Refusal."""
    try:
        text = data if isinstance(data, str) else data.decode()
        if text.count(",") + text.count("[") + text.count("{") > MAX_VALUES or text.count("\\") > MAX_ESCAPES:
            raise Refusal(413, f"more than {MAX_VALUES} values, or {MAX_ESCAPES} escaped characters; send fewer")
        value = json.loads(text, parse_int=_whole, parse_float=_fraction)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError:
        raise Refusal(400, HALF_A_PAIR) from None
    except UnicodeDecodeError as error:
        raise Refusal(400, f"what was sent is not UTF-8: {error.reason} at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"what was sent is not JSON: {error}") from None


def parse(model: type[Body], data: Any) -> Body:
    """Validate JSON against a model. Raises Refusal."""
    if not isinstance(data, dict):
        raise Refusal(400, "the body must be a JSON object")
    try:
        return model.model_validate({name: _told(value) for name, value in data.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        param = ".".join(str(part) for part in first["loc"][:1])
        raise Refusal(400, f"{param}: {first['msg']}", param=param, code="invalid_value") from None


def _told(value: Any) -> Any:
    """Drop null fields: clients send null for a field that is not set."""
    return {name: each for name, each in value.items() if each is not None} if isinstance(value, dict) else value


def _whole(digits: str) -> int:
    return int(_short(digits))


def _fraction(digits: str) -> float:
    return float(_short(digits))


def _short(digits: str) -> str:
    if len(digits) > MAX_DIGITS:
        raise Refusal(413, f"a number of {len(digits)} digits; send at most {MAX_DIGITS}")
    return digits

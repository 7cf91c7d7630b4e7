"""Reads the JSON of callers, with so many limits that no message holds up the others. Pure."""

import difflib
import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AliasChoices, BaseModel, Field, ValidationError

from sonorant.gateway.errors import Refusal

Body = TypeVar("Body", bound=BaseModel)

MAX_VALUES = 70_000  # in one message: 32 texts with an embedding of 2,048 numbers each
MAX_ESCAPES = 400_000  # a recording of 8 MiB with all slashes escaped has half as many
MAX_EMBEDDING = 8192  # numbers; four times as many as known speaker encoders have
MAX_DIGITS = 40  # of a number; reading one takes time that grows with their square
MAX_NAME_CHARS = 512  # of a field with a name, such as a voice's
MAX_TEXT_CHARS = 256 * 1024  # of any other text; a server allows fewer
MAX_UINT32 = 2**32 - 1  # largest value of the server's fields
MISSPELT_HEADER = "X-Misspelt-Fields"
MAX_LOOKED_AT = 32  # unknown names of a request
MAX_UNKNOWN_CHARS = 40  # of a name
NEAR = 0.8  # of difflib: one or two letters of a short name
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


TextFormat: TypeAlias = Literal["plain", "markdown", "ssml"]


class TextFields(BaseModel):
    """How a text is written and its words are said: fields of our own, for requests of all doors with JSON."""

    text_format: TextFormat | None = Field(
        None, description="How the text is written. Default: the gateway's for this door. A Sonorant extension."
    )
    leave_out: list[Literal["code", "table", "link"]] = Field(
        [], max_length=8, description="What of markdown is not said: code blocks, tables, addresses. An extension, too."
    )
    directions: bool = Field(
        False, description='Follow directions in the text: "[whispering]", "[pause 500ms]". An extension, too.'
    )
    dictionaries: list[Annotated[str, Field(max_length=MAX_NAME_CHARS, pattern=r"^[^@]+(@[0-9]{1,9})?$")]] = Field(
        [],
        max_length=4,
        description='Pronunciation dictionaries of /v1/audio/dictionaries: "names", or "names@3" for a version.',
    )


def misspelt(model: type[BaseModel], data: Any) -> str:
    """Return a line such as `langauge: did you mean language?`, or "".

    Unknown fields are accepted, because stock SDKs send fields of their own. So this is told beside the answer.
    """
    if not isinstance(data, dict):
        return ""
    known = set(_names(model))
    unknown = [name for name in data if name not in known and len(name) <= MAX_UNKNOWN_CHARS and name.isascii()]
    near = [(name, difflib.get_close_matches(name, known, n=1, cutoff=NEAR)) for name in unknown[:MAX_LOOKED_AT]]
    return ", ".join(f"{name}: did you mean {found[0]}?" for name, found in near if found and name.isprintable())


def _names(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield name
        if isinstance(field.alias, str):
            yield field.alias
        if isinstance(field.validation_alias, AliasChoices):
            yield from (choice for choice in field.validation_alias.choices if isinstance(choice, str))
        elif isinstance(field.validation_alias, str):
            yield field.validation_alias

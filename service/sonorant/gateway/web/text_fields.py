"""How a text is written and its words are said: fields of our own, for requests of all doors with JSON."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field

from sonorant.gateway.web.json_input import MAX_NAME_CHARS

TextFormat: TypeAlias = Literal["plain", "markdown", "ssml"]


class TextFields(BaseModel):
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

"""How a text is written: fields of our own, which requests of all doors with JSON may have."""

from typing import Literal, TypeAlias

from pydantic import BaseModel, Field

TextFormat: TypeAlias = Literal["plain", "markdown", "ssml"]


class TextFields(BaseModel):
    text_format: TextFormat | None = Field(
        None, description="How the text is written. Default: the gateway's for this door. A Sonorant extension."
    )
    leave_out: list[Literal["code", "table", "link"]] = Field(
        [], max_length=8, description="What of markdown is not said: code blocks, tables, addresses. An extension, too."
    )

"""Names the nearest field for one that a request misspells. Pure.

Unknown fields are accepted, because stock SDKs send fields of their own. So this is told beside the answer.
"""

import difflib
from collections.abc import Iterator
from typing import Any

from pydantic import AliasChoices, BaseModel

HEADER = "X-Misspelt-Fields"
MAX_LOOKED_AT = 32  # unknown names of a request
MAX_CHARS = 40  # of a name
NEAR = 0.8  # of difflib: one or two letters of a short name


def misspelt(model: type[BaseModel], data: Any) -> str:
    """Return a line such as `langauge: did you mean language?`, or ""."""
    if not isinstance(data, dict):
        return ""
    known = set(_names(model))
    unknown = [name for name in data if name not in known and len(name) <= MAX_CHARS and name.isascii()]
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

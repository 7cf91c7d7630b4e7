"""The JSON objects of a checkpoint folder, and dataclasses that say which keys they have.

`save_pretrained` leaves out keys that equal a default of the official configuration classes, so an absent key means the
default, and so does null. Source: QwenLM/Qwen3-TTS
`qwen_tts/core/models/configuration_qwen3_tts.py`,
`qwen_tts/core/tokenizer_12hz/configuration_qwen3_tts_tokenizer_v2.py`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from sonorant.engine.checkpoint.files import read_text
from sonorant.engine.errors import CheckpointError

T = TypeVar("T")
Json: TypeAlias = Mapping[str, Any]
MAX_BYTES = 16 * 1024 * 1024  # of a file
# Far beyond any checkpoint, so that a wrong number is told at once: what has 10^9 layers is never built.
MAX_SIZE = 2**24
MOST: Mapping[str, int] = {
    "num_hidden_layers": 1024,
    "num_code_groups": 256,
    "num_quantizers": 256,
    "num_residual_layers": 16,
    "num_semantic_quantizers": 256,
    "silent_first_frames": 8,
}
MAX_SIZES = 16  # in a list
MAX_NUMBER = 1e30
_NONE: Json = MappingProxyType({})


def key(default: object = None, name: str = "", *, table: str = "", least: int = 1) -> Any:
    """Declare a field of a dataclass that `Section.make` reads: a size, unless its type or `table` says otherwise.

    `default`: of the official configuration; None = the file must have the key. `name`: of the key, if it is not the
    field's. `table`: what is read are ids, rows of a table, and this is the field with their number. `least`: of sizes.
    """
    return field(metadata={"default": default, "name": name, "table": table, "least": least})


@dataclass(frozen=True, slots=True)
class Section:
    """One JSON object. It knows its file and key, so that every error can say where it is."""

    path: str
    values: Json

    @classmethod
    def read(cls, file: Path) -> "Section":
        try:
            values = json.loads(read_text(file, MAX_BYTES))
        except FileNotFoundError:
            raise CheckpointError(f"{file} is missing; a checkpoint folder in the published layout has it") from None
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{file} cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise CheckpointError(f"{file} does not hold a JSON object")
        return cls(str(file), values)

    def make(self, kind: type[T], sizes: Json = _NONE, defaults: Json = _NONE, **given: Any) -> T:
        """Make a dataclass of the `given` fields, and of those that it declares by `key`. Raises CheckpointError if a
        key is missing or its value cannot be used.

        `sizes`: of tables that are no fields of it. `defaults`: in place of the declared ones, by field.
        """
        readers: Mapping[Any, Any] = {float: self.number, bool: self.flag, str: self.text, tuple[int, ...]: self.sizes}
        made = dict(given)
        for each in fields(kind):  # type: ignore[arg-type]
            if each.name in given:
                continue
            name, table = each.metadata["name"] or each.name, each.metadata["table"]
            default = defaults.get(each.name, each.metadata["default"])
            if table and each.type is int:
                made[each.name] = self.id(name, default, table, {**sizes, **made}[table])
            elif table:
                made[each.name] = self.ids(name, table, {**sizes, **made}[table])
            elif each.type is int:
                made[each.name] = self.size(name, default, each.metadata["least"])
            else:
                made[each.name] = readers[each.type](name, default)
        return kind(**made)

    def section(self, key: str) -> "Section":
        return Section(f"{self.path}: {key}", self.table(key))

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def table(self, key: str) -> Json:
        value = self._required(key, {})
        if not isinstance(value, dict):
            raise CheckpointError(f"{self.path}: {key} must be an object, not {value!r}")
        return value

    def id(self, key: str, default: int | None, num_ids: str, limit: int) -> int:
        """Return an id: a row of the table whose size is `limit`, which the setting `num_ids` says.

        Raises CheckpointError if it is beyond the table: it would fail, or speak nonsense, only when somebody uses it.
        """
        value = self.integer(key, default)
        if not 0 <= value < limit:
            raise CheckpointError(
                f"{self.path}: {key} is {value}; it must be 0 to {limit - 1}, as {num_ids} is {limit}"
            )
        return value

    def ids(self, key: str, num_ids: str, limit: int) -> Mapping[str, int]:
        """Return names in lower case with their ids."""
        section = self.section(key)
        return {name.lower(): section.id(name, None, num_ids, limit) for name in section.values}

    def text(self, key: str, default: str | None = None) -> str:
        return str(self._required(key, default))

    def choice(self, key: str, names: Sequence[str], default: str | None = None) -> Any:
        """Return one of the names. Raises CheckpointError for any other."""
        value = self.text(key, default)
        if value not in names:
            raise CheckpointError(f"{self.path}: {key} is {value!r}; supported are {', '.join(names)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        return bool(self._required(key, default))

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._required(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise CheckpointError(f"{self.path}: {key} must be an integer, not {value!r}")
        return value

    def size(self, key: str, default: int | None = None, least: int = 1) -> int:
        value, most = self.integer(key, default), MOST.get(key, MAX_SIZE)
        if not least <= value <= most:
            raise CheckpointError(f"{self.path}: {key} must be {least} to {most}, not {value}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._required(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > MAX_NUMBER:
            raise CheckpointError(f"{self.path}: {key} must be a number, not {value!r}")
        return float(value)

    def sizes(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        value = self._required(key, default)
        if (
            not isinstance(value, list | tuple)
            or len(value) > MAX_SIZES
            or not all(isinstance(v, int) and 1 <= v <= MAX_SIZE for v in value)
        ):
            raise CheckpointError(
                f"{self.path}: {key} must be a list of at most {MAX_SIZES} integers, 1 to {MAX_SIZE}, not "
                f"{repr(value)[:200]}"
            )
        return tuple(value)

    def _required(self, key: str, default: object) -> Any:
        value = self.values.get(key)
        value = default if value is None else value
        if value is None:
            raise CheckpointError(f"{self.path}: {key} is missing")
        return value

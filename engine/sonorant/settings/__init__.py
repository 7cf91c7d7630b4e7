"""Declares settings: each is one field of a frozen dataclass that says which values it takes and what it means.

Flags, environment variables, TOML keys and their help are derived from the fields; `sources` reads them. Server,
gateway and engine declare their settings so.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar

T = TypeVar("T")
Parse = Callable[[str], Any]  # raises a ValueError that says which values are right

DEVICE = "auto|cpu|cuda:N"
AUTO = -1  # stands for a number that is chosen from the machine; see sonorant.engine.sizes


@dataclass(frozen=True, slots=True)
class Setting:
    name: str  # the flag's name with underscores; unique
    stage: str  # table of the TOML file; "" = the top level
    key: str  # in that table
    parse: Parse
    metavar: str
    help: str
    default: Any  # in a server
    repeats: bool  # the flag may be given several times; elsewhere commas separate the values

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def setting(
    default: T,
    parse: Parse,
    metavar: str,
    help: str,
    *,
    flag: str = "",
    served: T | None = None,
    repeats: bool = False,
) -> T:
    """Declare a field of a settings dataclass. `flag`: the flag's name, if the field's own name would not be clear.
    `served`: the default in a server, if that differs from `default`. `repeats`: see `Setting`."""
    told = {"parse": parse, "metavar": metavar, "help": help, "name": flag, "repeats": repeats}
    declared: T = field(default=default, metadata={**told, "served": default if served is None else served})
    return declared


def internal(default: T, *, name: str = "", served: T | None = None) -> T:
    """Declare a field that no source sets, only tests and measurements. `name` and `served` as `setting` has them."""
    declared: T = field(default=default, metadata={"name": name, "served": default if served is None else served})
    return declared


def _declared(kind: type, stage: str = "") -> Iterator[tuple[str, str, Field[Any]]]:
    """Yield the declared fields of a dataclass, each with its name as a flag and its stage; a field that is itself a
    dataclass is a stage with fields of its own."""
    for each in fields(kind):
        if isinstance(each.type, type) and is_dataclass(each.type):
            yield from _declared(each.type, each.name)
        elif each.metadata:
            yield each.metadata["name"] or each.name, stage, each


def settings_of(kind: type, stage: str = "") -> Iterator[Setting]:
    """Yield the settings of a dataclass and of its stages."""
    for name, table, each in _declared(kind, stage):
        if "parse" in (said := each.metadata):
            texts = (said["parse"], said["metavar"], said["help"], said["served"], said["repeats"])
            yield Setting(name, table, each.name if table else name, *texts)


def defaults_of(kind: type) -> dict[str, Any]:
    """Return the default in a server of each declared field, internal ones too, by their names as flags."""
    return {name: each.metadata["served"] for name, _, each in _declared(kind)}


def with_settings(config: T, values: Mapping[str, Any]) -> T:
    """Return `config` with these values, by the names of their flags; ignore names that it does not have."""
    changes = {}
    for each in fields(config):  # type: ignore[arg-type]
        value = getattr(config, each.name)
        if is_dataclass(value):
            changes[each.name] = with_settings(value, values)
        elif each.metadata and (name := each.metadata["name"] or each.name) in values:
            changes[each.name] = values[name]
    return replace(config, **changes)  # type: ignore[type-var]


def as_choice(*choices: str) -> Parse:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is not one of {', '.join(choices)}")
        return text

    return parse


def as_list(parse: Parse) -> Parse:
    """Extend a parser to several values with commas between them."""
    return lambda text: tuple(parse(each) for each in text.split(",") if each)


def as_address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not host or not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT; for example 127.0.0.1:50051 or [::]:50051")
    return text


def as_device(text: str) -> str:
    kind, _, index = text.partition(":")
    if text not in ("auto", "cpu", "cuda") and not (kind == "cuda" and index.isdecimal()):
        raise ValueError(f"{text!r} is not one of auto, cpu, cuda, cuda:N")
    return text


def as_switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def as_count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def as_positive(text: str) -> int:
    if as_count(text) == 0:
        raise ValueError("must be at least 1")
    return int(text)


def as_auto(parse: Callable[[str], int]) -> Callable[[str], int]:
    """Extend a parser to take `auto`, too."""
    return lambda text: AUTO if text == "auto" else parse(text)


def _below(limit: float, what: str) -> Callable[[str], float]:
    """Make a parser of numbers above 0 and below `limit`; `what` describes them in the error."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 < value < limit:
            raise ValueError(f"{text!r} is not {what}")
        return value

    return parse


as_seconds = _below(86_400, "a number of seconds between 0 and 86400")
as_gib = _below(10_000, "a number of GiB, such as 12; leave it out for all that is free")

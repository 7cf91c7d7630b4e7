"""The settings in use: from the command line, else the environment, else a TOML file, else the default.

A setting of one stage wins over the same setting of all stages, whatever sources they come from: sources only compete
for the same setting. An unknown setting in any source ends the process.
"""

import argparse
import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from sonorant.settings import AUTO, Setting

T = TypeVar("T")

# Kubernetes puts variables for each Service into every container. Those of a Service `sonorant` have our prefix.
_KUBERNETES = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")


class ConfigError(Exception):
    """A setting is wrong; the message says which, where it came from, and what to do."""


class Sources:
    """Reads the settings of one program."""

    def __init__(
        self,
        prefix: str,
        settings: Iterable[Setting],
        others: Sequence[str] = (),
        gone: Mapping[str, str] = MappingProxyType({}),
        groups: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`prefix`: of environment variables. `others`: longer prefixes, which end in _, and names of variables that
        belong to other programs. `gone`: what to say about settings that there were once, by their names. `groups`: of
        the help: their titles, and the names in each; without any, settings are in one list."""
        self._gone = {name: f"; {hint}" for name, hint in gone.items()}
        self.settings = tuple(settings)
        self.config_variable = f"{prefix}CONFIG"
        self._prefix = prefix
        self._foreign_prefixes = tuple(each for each in others if each.endswith("_"))
        self._foreign_names = {f"{prefix}CONFIG", *others}
        self._groups = groups
        self._by_name = {setting.name: setting for setting in self.settings}

    def variable(self, setting: Setting) -> str:
        """Return the name of the setting's environment variable."""
        return self._prefix + setting.name.upper()

    def parse(
        self,
        parser: argparse.ArgumentParser,
        argv: Sequence[str] | None,
        environment: Mapping[str, str] | None,
        make: Callable[[dict[str, Any]], T],
        from_document: Callable[[dict[str, Any], str], dict[str, Any]] | None = None,
    ) -> T:
        """Read all sources, and return what `make` makes of the values, by name. Exits with status 2 and a message if
        anything is wrong. `from_document`: reads a TOML document, if it has more than this program's settings.
        """
        self._add_flags(parser)
        known, unknown = parser.parse_known_args(argv)
        if unknown:
            gone = self._gone.get(unknown[0].partition("=")[0].removeprefix("--").replace("-", "_"), "")
            hint = gone or similar(unknown[0], [each.flag for each in self.settings])
            parser.error(f"{unknown[0]} is not a setting{hint}")
        flags: dict[str, Any] = vars(known)
        environment = os.environ if environment is None else environment
        try:
            path = flags.pop("config", None) or environment.get(self.config_variable)
            values = (from_document or self.from_tables)(_document(Path(path)), path) if path else {}
            values |= self._from_environment(environment)
            of_flags = {self._by_name[name]: text for name, text in flags.items()}
            values |= {each.name: parsed(each, _text(text), each.flag) for each, text in of_flags.items()}
            return make(values)
        except ConfigError as error:
            parser.error(str(error))

    def from_tables(
        self, document: dict[str, Any], path: str, stages: Iterable[str] | None = None, header: str = "[{}]"
    ) -> dict[str, Any]:
        """Read a table, and those inside it of these stages (None = all). `path` and `header` name them in errors."""
        stages = self._stages() if stages is None else stages
        tables = {stage: document.pop(stage, {}) for stage in stages if stage}
        values = {}
        for stage, table in {"": document, **tables}.items():
            where = f"{path}, {header.format(stage)}" if stage else path
            if not isinstance(table, dict):
                raise ConfigError(f"{where} must be a table, not a value")
            known = {setting.key: setting for setting in self.settings if setting.stage == stage}
            for key, value in table.items():
                if key not in known:
                    hint = (
                        self._gone.get(key)
                        or self._gone.get(f"{stage}_{key}")
                        or self._elsewhere(key)
                        or similar(key, [*known, *tables])
                    )
                    raise ConfigError(f"{where}: {key} is not a setting here{hint}")
                if isinstance(value, dict):
                    raise ConfigError(f"{where}: {key} must be a value, not a table")
                values[known[key].name] = parsed(known[key], _text(value), f"{where}: {key}")
        return values

    def _stages(self) -> list[str]:
        return list(dict.fromkeys(setting.stage for setting in self.settings))

    def _add_flags(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--config", metavar="FILE", help=f"TOML file; also {self.config_variable}")
        for title, names in (self._groups or {"": " ".join(self._by_name)}).items():
            group = parser.add_argument_group(title) if title else parser
            for each in (self._by_name[name] for name in names.split()):
                hint = f"; default: {_text(each.default)}" if each.default not in (None, "", ()) else ""
                action = "append" if each.repeats else "store"
                group.add_argument(each.flag, action=action, metavar=each.metavar, help=each.help + hint)

    def _from_environment(self, environment: Mapping[str, str]) -> dict[str, Any]:
        known = {self.variable(setting): setting for setting in self.settings}
        values = {}
        for name, text in environment.items():
            if setting := known.get(name):
                values[setting.name] = parsed(setting, text, name)
            elif name.startswith(self._prefix) and not self._is_foreign(name, text):
                hint = self._gone.get(name.removeprefix(self._prefix).lower()) or similar(name, known)
                raise ConfigError(f"environment variable {name} is not a setting{hint}")
        return values

    def _is_foreign(self, name: str, text: str) -> bool:
        """Return whether a variable with our prefix belongs to something else: to Kubernetes or another program."""
        of_kubernetes = _KUBERNETES.fullmatch(name) or text.startswith(("tcp://", "udp://", "sctp://"))
        return name in self._foreign_names or name.startswith(self._foreign_prefixes) or bool(of_kubernetes)

    def _elsewhere(self, key: str) -> str:
        tables = [setting.stage for setting in self.settings if setting.key == key]
        names = [f"in [{stage}]" if stage else "at the top of the file" for stage in tables]
        return f"; it belongs {' or '.join(names)}" if names else ""


def similar(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f"; did you mean {found[0]}?" if found else ""


def parsed(setting: Setting, text: str, where: str) -> Any:
    try:
        return setting.parse(text)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def _document(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # neither UTF-8 nor TOML, or nested too deeply
        raise ConfigError(f"{path} is not TOML: {error}") from error


def _text(value: Any) -> str:
    """Write a value of the file as on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if value == AUTO:
        return "auto"
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)

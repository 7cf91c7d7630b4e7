"""Merges the metrics of several server processes, as if they came from one. Pure.

Numbers are added, except those that every process reads alike, of which the largest counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client.utils import floatToGoString

from sonorant.service.operations.engine_metrics import OF_ALL_PROCESSES

# What every process reads alike; and what is bad if any process finds it so.
_LARGEST = OF_ALL_PROCESSES | {"tts_sessions_limit", "tts_sessions_used_ratio"}
_SMALLEST = frozenset({"tts_api_keys_up", "tts_database_up", "tts_certificate_expires_timestamp_seconds"})
_CREATED = "_created"  # when a counter began


@dataclass(slots=True)
class _Family:
    head: list[str] = field(default_factory=list)  # comment lines
    samples: dict[str, list[float]] = field(default_factory=dict)  # by name and labels, as they are written


def merged(texts: Iterable[str]) -> str:
    """Merge texts in the Prometheus format. Families and samples are in the order in which they first appear."""
    families: dict[str, _Family] = {}
    for text in texts:
        name = ""
        for line in text.splitlines():
            if line.startswith("#"):
                _, _, name, *_ = line.split(" ", 3)
                family = families.setdefault(name, _Family())
                if line not in family.head:
                    family.head.append(line)
            elif line:
                sample, _, value = line.rpartition(" ")
                families[name].samples.setdefault(sample, []).append(float(value))
    lines: list[str] = []
    for name, family in families.items():
        lines += family.head
        lines += (f"{sample} {_text(_joined(name, values))}" for sample, values in family.samples.items())
    return "\n".join(lines) + "\n"


def _joined(family: str, values: list[float]) -> float:
    name = family.removesuffix("_total")
    if family.endswith(_CREATED) or name in _SMALLEST:
        return min(values)
    return max(values) if name in _LARGEST else sum(values)


def _text(value: float) -> str:
    """Return a number as Prometheus clients write it."""
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]

"""Dictionaries as rows: a version is a row. The statements hold for SQLite and PostgreSQL alike.

Each function runs in one transaction of a store of voices (`VoiceStore.run`). An owner is the name of an API key, or ""
without keys. A version never changes, but a deleted dictionary that is made again begins with version 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sonorant.service.errors import DictionaryQuotaReached

MAX_DICTIONARIES = 100  # of an owner
MAX_VERSIONS = 20  # of a dictionary; the oldest one makes room
SCHEMA = """
CREATE TABLE IF NOT EXISTS sonorant_dictionaries (
    owner TEXT NOT NULL,
    dictionary_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    create_s DOUBLE PRECISION NOT NULL,
    num_phrases INTEGER NOT NULL,
    phrases TEXT NOT NULL,
    PRIMARY KEY (owner, dictionary_id, version)
)
"""
Execute = Callable[[str, Sequence[object]], list[Any]]  # runs a statement with "?" for its values; returns its rows
_COLUMNS = "owner, dictionary_id, version, create_s, num_phrases"


@dataclass(frozen=True, slots=True)
class DictionaryVersion:
    """One version of a dictionary. Its `phrases` are JSON; "" in lists."""

    owner: str
    dictionary_id: str
    version: int
    create_s: float  # Unix time
    num_phrases: int
    phrases: str = ""


def newest(execute: Execute, owner: str) -> list[DictionaryVersion]:
    """Return the newest version of each dictionary, sorted by id."""
    rows = execute(f"SELECT {_COLUMNS} FROM sonorant_dictionaries WHERE owner = ? ORDER BY version", [owner])
    last = {row[1]: DictionaryVersion(*row) for row in rows}
    return [last[dictionary_id] for dictionary_id in sorted(last)]


def find(execute: Execute, owner: str, dictionary_id: str, version: int) -> DictionaryVersion | None:
    """`version`: 0 = the newest one."""
    condition, values = ("AND version = ?", [version]) if version else ("ORDER BY version DESC LIMIT 1", [])
    rows = execute(
        f"SELECT {_COLUMNS}, phrases FROM sonorant_dictionaries WHERE owner = ? AND dictionary_id = ? {condition}",
        [owner, dictionary_id, *values],
    )
    return DictionaryVersion(*rows[0]) if rows else None


def versions(execute: Execute, owner: str, dictionary_id: str) -> list[int]:
    """Return the numbers of all versions that are kept, the newest first."""
    statement = "SELECT version FROM sonorant_dictionaries WHERE owner = ? AND dictionary_id = ? ORDER BY version DESC"
    return [version for (version,) in execute(statement, [owner, dictionary_id])]


def put(
    execute: Execute, owner: str, dictionary_id: str, phrases: str, num_phrases: int, now_s: float
) -> DictionaryVersion:
    """Make the next version, unless the newest one has the same phrases. Raises DictionaryQuotaReached."""
    there = find(execute, owner, dictionary_id, 0)
    if there is not None and there.phrases == phrases:
        return there
    if there is None:
        statement = "SELECT count(DISTINCT dictionary_id) FROM sonorant_dictionaries WHERE owner = ?"
        if execute(statement, [owner])[0][0] >= MAX_DICTIONARIES:
            raise DictionaryQuotaReached(f"you have all {MAX_DICTIONARIES} dictionaries that you may; delete one first")
    made = DictionaryVersion(owner, dictionary_id, there.version + 1 if there else 1, now_s, num_phrases, phrases)
    execute(
        f"INSERT INTO sonorant_dictionaries ({_COLUMNS}, phrases) VALUES (?, ?, ?, ?, ?, ?)",
        [owner, dictionary_id, made.version, now_s, num_phrases, phrases],
    )
    execute(
        "DELETE FROM sonorant_dictionaries WHERE owner = ? AND dictionary_id = ? AND version <= ?",
        [owner, dictionary_id, made.version - MAX_VERSIONS],
    )
    return made


def remove(execute: Execute, owner: str, dictionary_id: str) -> bool:
    """Delete a dictionary with all its versions, and return whether there was one."""
    there = find(execute, owner, dictionary_id, 0)
    execute("DELETE FROM sonorant_dictionaries WHERE owner = ? AND dictionary_id = ?", [owner, dictionary_id])
    return there is not None


def everything(execute: Execute) -> list[DictionaryVersion]:
    """Return all versions of all owners, the oldest of each dictionary first."""
    rows = execute(f"SELECT {_COLUMNS}, phrases FROM sonorant_dictionaries ORDER BY owner, dictionary_id, version", [])
    return [DictionaryVersion(*row) for row in rows]


def copy(execute: Execute, dictionaries: Sequence[DictionaryVersion]) -> None:
    """Insert versions of another store, but none whose number is there."""
    for made in dictionaries:
        execute(
            f"INSERT INTO sonorant_dictionaries ({_COLUMNS}, phrases) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            [made.owner, made.dictionary_id, made.version, made.create_s, made.num_phrases, made.phrases],
        )

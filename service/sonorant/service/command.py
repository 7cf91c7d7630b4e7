"""The command `sonorant-server`: the server, and its subcommands."""

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from sonorant.service import doctor
from sonorant.service.access.api_keys import ApiKeysError, new_key
from sonorant.service.config import parse_args
from sonorant.service.errors import VoiceStoreFailed
from sonorant.service.owner import number_of, run
from sonorant.service.voices.migration import Migration, migrate
from sonorant.service.voices.opening import NoVoicesHere, open_named, open_to_read, open_to_rebuild
from sonorant.service.voices.rebuilding import Rebuilt, rebuild

HELP = {
    "doctor": "doctor [SETTING...]: say what of this machine and of these settings passes, could be better or is "
    "broken. Exit status 1 if anything is broken. The settings are those that 'sonorant-server --help' lists.",
    "new-key": "new-key NAME: make a key for the caller of this name. Its table for the file of --api-keys goes to "
    "stdout; the key, which is stored nowhere, to stderr.",
    "voices": "voices migrate SOURCE TARGET: copy kept voices from one folder or database URL to another. "
    "voices rebuild FOLDER [--owner NAME]: add the voices of files that the folder's list has not.",
}


def main() -> None:
    match sys.argv[1:]:
        case [command, *rest] if command in HELP and not {"-h", "--help"}.isdisjoint(rest):
            print(f"usage: sonorant-server {HELP[command]}")
            code = 0
        case ["new-key", name] if not name.startswith("-"):
            code = _new_key(name)
        case ["doctor", *settings]:
            config = parse_args(settings)
            code = doctor.run(config, number_of(config))
        case ["voices", "migrate", source, target]:
            code = _migrate(source, target)
        case ["voices", "rebuild", folder]:
            code = _rebuild(folder, None)
        case ["voices", "rebuild", folder, "--owner", owner]:
            code = _rebuild(folder, owner)
        case ["new-key" | "voices" as command, *_]:
            print(f"sonorant-server: use {HELP[command]}", file=sys.stderr)
            code = 2
        case _:
            code = run(parse_args())
    sys.exit(code)


def _migrate(source: str, target: str) -> int:
    """Copy voices and return the exit status: 1 if some could not be copied."""

    def copy() -> Migration:
        with closing(open_to_read(source)) as here, closing(open_named(target)) as there:
            return migrate(here, there)

    return _reported(copy)


def _rebuild(folder: str, owner: str | None) -> int:
    """Add the voices of files without rows, and return the exit status: 1 if some files are left without."""

    def add() -> Rebuilt:
        with closing(open_to_rebuild(Path(folder))) as registry:
            return rebuild(registry, owner)

    return _reported(add)


def _reported(work: Callable[[], Migration | Rebuilt]) -> int:
    """Do the work, say what was done to stdout and what was not to stderr, and return the exit status."""
    try:
        done = work()
    except (NoVoicesHere, VoiceStoreFailed) as error:
        print(f"sonorant-server: {error.__cause__ or error}", file=sys.stderr)
        return 1
    for each in done.left:
        print(f"sonorant-server: {each}", file=sys.stderr)
    print(done)
    return 1 if done.left else 0


def _new_key(name: str) -> int:
    """Print the table to stdout, to be appended to the file, and the key, which is stored nowhere, to stderr."""
    try:
        key, table = new_key(name)
    except ApiKeysError as error:
        print(f"sonorant-server: {error}", file=sys.stderr)
        return 2
    print(table)
    print(f"The key of {name}, shown only this once: {key}", file=sys.stderr)
    return 0

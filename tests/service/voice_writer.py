"""A process that makes, and deletes, voices until it is killed, and tells of each one once it is acknowledged.

python -m tests.service.voice_writer FOLDER OWNER FIRST_NUMBER
"""

import sys
from pathlib import Path

from sonorant.service.voices import sqlite_opening
from sonorant.service.voices.file import unpack
from sonorant.service.voices.sqlite_store import VoiceRegistry
from tests.service.voice_values import ROOMY, file_of

DELETED_EVERY = 20  # every twentieth voice goes right after it came


def main(folder: str, owner: str, first: str) -> None:
    sqlite_opening.BUSY_TIMEOUT_S = 120.0  # SQLite lets writers wait in no order, and disks of test machines are slow
    registry = VoiceRegistry(Path(folder))
    number = int(first)
    while True:
        file = file_of(number)
        about, _ = unpack(file)
        registry.add(owner, about, file, None, ROOMY)
        print(f"made {number}", flush=True)
        if number % DELETED_EVERY == 0:
            print(f"deleting {number}", flush=True)
            registry.remove(owner, about.voice_id)
            print(f"deleted {number}", flush=True)
        number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])

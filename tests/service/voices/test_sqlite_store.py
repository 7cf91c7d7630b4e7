"""The registry of voices: what is acknowledged stays, whatever is killed and when; everything else has limits."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sonorant.service.errors import VoiceDamaged, VoiceStoreFailed
from sonorant.service.voices.file import unpack
from sonorant.service.voices.folder import DATABASE, FILES
from sonorant.service.voices.sqlite_store import VoiceRegistry
from sonorant.service.voices.store import RequestKey
from tests.service.voice_values import ROOMY, about, file_of
from tests.service.voice_writer import DELETED_EVERY

NUM_VOICES = 1000
NUM_KILLS = 3


def everything(_: object) -> bool:
    return True


def ids(registry: VoiceRegistry, owner: str = "") -> list[str]:
    return [voice.about.voice_id for voice in registry.page(owner, "", everything, 10_000)]


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[VoiceRegistry]:
    with closing(VoiceRegistry(tmp_path / "voices")) as registry:
        yield registry


@pytest.mark.slow
def test_what_is_acknowledged_survives_kills_in_the_middle_of_writes(tmp_path: Path) -> None:
    """1,000 voices by processes that are killed (SIGKILL) while two of them write."""
    made: dict[str, set[int]] = {"ada": set(), "bob": set()}
    maybe_gone: set[tuple[str, int]] = set()  # deletion begun
    for _ in range(NUM_KILLS):
        target = sum(map(len, made.values())) + NUM_VOICES // NUM_KILLS + 1
        writers = {owner: _writer(tmp_path, owner, max(numbers, default=0) + 1000) for owner, numbers in made.items()}
        enough = threading.Event()

        def follow(
            owner: str, process: "subprocess.Popen[str]", enough: threading.Event = enough, target: int = target
        ) -> None:
            assert process.stdout is not None
            for line in process.stdout:  # to the very last word before the kill
                word, number = line.split()
                if word == "made":
                    made[owner].add(int(number))
                else:
                    maybe_gone.add((owner, int(number)))
                if sum(map(len, made.values())) >= target:
                    enough.set()
            enough.set()  # a writer that ended by itself makes no more

        with ThreadPoolExecutor() as threads:
            followers = [threads.submit(follow, owner, process) for owner, process in writers.items()]
            enough.wait()
            for process in writers.values():
                process.kill()
            for follower in followers:
                follower.result()
        for process in writers.values():
            process.communicate()

    with closing(VoiceRegistry(tmp_path)) as registry:
        assert sum(map(len, made.values())) >= NUM_VOICES
        kept = 0
        for owner, numbers in made.items():
            voices = {voice.about.voice_id: voice for voice in registry.page(owner, "", everything, 100_000)}
            kept += len(voices)
            expected = {f"voice-{number:05}" for number in numbers if (owner, number) not in maybe_gone}
            assert expected <= voices.keys(), "an acknowledged voice is missing"
            assert len(voices.keys() - expected) <= 2 * NUM_KILLS, "unacknowledged voices: one per kill at most"
            for voice_id, voice in voices.items():
                data = registry.load(voice)
                assert data == file_of(int(voice_id.removeprefix("voice-"))), "not byte-equal"
                assert unpack(data)[0] == voice.about
    assert any(number % DELETED_EVERY == 0 for numbers in made.values() for number in numbers)
    assert len(list((tmp_path / FILES).iterdir())) == kept, "files that belong to no voice"


def _writer(folder: Path, owner: str, first: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.service.voice_writer", str(folder), owner, str(first)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])


def test_damage_is_noticed(registry: VoiceRegistry, tmp_path: Path) -> None:
    stored = registry.add("", about("anna"), b"x" * 100, None, ROOMY)
    path = tmp_path / "voices" / FILES / stored.file
    path.write_bytes(b"x" * 99 + b"y")
    with pytest.raises(VoiceDamaged, match="was changed"):
        registry.load(stored)
    path.unlink()
    with pytest.raises(VoiceDamaged, match="is missing"):
        registry.load(stored)


def test_a_damaged_database_says_so(registry: VoiceRegistry, tmp_path: Path) -> None:
    registry.add("", about("anna"), b"x", RequestKey("r", b""), ROOMY)
    with closing(sqlite3.connect(tmp_path / "voices" / DATABASE)) as database, database:
        database.execute("UPDATE voices SET about = '{'")
    for attempt in (
        lambda: registry.find("", "anna"),
        lambda: registry.page("", "", everything, 9),
        lambda: registry.prepare("", "anna", RequestKey("r", b""), ROOMY),
        registry.check,
    ):
        with pytest.raises(VoiceStoreFailed):
            attempt()


def test_a_folder_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VoiceStoreFailed):
        VoiceRegistry(tmp_path / "file")
    VoiceRegistry(tmp_path / "voices").close()
    database = sqlite3.connect(tmp_path / "voices" / DATABASE)
    database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(VoiceStoreFailed, match="another version"):
        VoiceRegistry(tmp_path / "voices")

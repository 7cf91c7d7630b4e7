"""The registry of voices: what is acknowledged stays, whatever is killed and when; everything else has limits."""

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from service.errors import RequestIdReused, VoiceDamaged, VoiceExists, VoiceQuotaReached, VoiceStoreFailed
from service.voice_file import unpack
from service.voice_registry import DATABASE, FILES, VoiceRegistry
from service.voice_store import RequestKey, StoredVoice, VoiceLimits
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

        with ThreadPoolExecutor() as threads:
            followers = [threads.submit(follow, owner, process) for owner, process in writers.items()]
            enough.wait(60)
            for process in writers.values():
                process.kill()
            for follower in followers:
                follower.result()
        for process in writers.values():
            process.communicate()

    registry = VoiceRegistry(tmp_path)
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
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def test_a_voice_is_what_was_written_and_only_its_owner_s(registry: VoiceRegistry) -> None:
    written = about("anna", labels={"mood": "calm"}, languages=("english",), display_name="Ännä", expire_s=2e9)
    stored = registry.add("ada", written, b"x" * 100, None, ROOMY)
    assert registry.find("ada", "anna") == stored and stored.about == written
    assert registry.load(stored) == b"x" * 100
    assert registry.find("bob", "anna") is None and ids(registry, "bob") == []
    registry.add("bob", about("anna"), b"y", None, ROOMY)  # ids are the owner's own
    with pytest.raises(VoiceExists):
        registry.add("ada", about("anna"), b"z", None, ROOMY)
    with pytest.raises(VoiceExists):
        registry.prepare("ada", "anna", None, ROOMY)
    assert registry.remove("ada", "anna") and not registry.remove("ada", "anna")
    assert registry.load(stored) is None and registry.find("bob", "anna") is not None


def test_repeated_requests_make_one_voice(registry: VoiceRegistry) -> None:
    request = RequestKey("r1", b"digest")
    assert registry.prepare("", "", request, ROOMY) is None
    first = registry.add("", about("anna"), b"x", request, ROOMY)
    assert registry.prepare("", "", request, ROOMY) == first
    assert registry.add("", about("berta"), b"y", request, ROOMY) == first
    assert ids(registry) == ["anna"]
    assert registry.prepare("ada", "", request, ROOMY) is None, "request ids are the owner's own"
    with pytest.raises(RequestIdReused):
        registry.add("", about("carla"), b"z", RequestKey("r1", b"other"), ROOMY)
    registry.remove("", "anna")
    assert registry.prepare("", "", request, ROOMY) is None


def test_pages_are_sorted_and_filtered(registry: VoiceRegistry) -> None:
    for number in (3, 1, 4, 0, 2):
        registry.add("", about(f"voice-{number}", labels={"odd": str(number % 2)}), b"x", None, ROOMY)
    assert ids(registry) == [f"voice-{number}" for number in range(5)]
    odd = registry.page("", "", lambda about: about.labels["odd"] == "1", 10)
    assert [voice.about.voice_id for voice in odd] == ["voice-1", "voice-3"]
    page = registry.page("", "voice-1", everything, 2)
    assert [voice.about.voice_id for voice in page] == ["voice-2", "voice-3"]


def test_limits(registry: VoiceRegistry) -> None:
    limits = VoiceLimits(max_voices=3, max_bytes=100, max_voices_of_owner=2)
    registry.add("ada", about("a"), b"x" * 10, None, limits)
    with pytest.raises(VoiceQuotaReached, match="100 bytes"):
        registry.add("ada", about("b"), b"x" * 91, None, VoiceLimits(3, 100, 2))
    registry.add("ada", about("b"), b"x", None, limits)
    for attempt in (
        lambda: registry.prepare("ada", "", None, limits),
        lambda: registry.add("ada", about("c"), b"x", None, limits),
    ):
        with pytest.raises(VoiceQuotaReached, match="all 2 voices of yours"):
            attempt()
    registry.add("bob", about("a"), b"x", None, limits)
    with pytest.raises(VoiceQuotaReached, match="all 3 voices of this server"):
        registry.add("bob", about("b"), b"x", None, limits)
    registry.remove("ada", "a")
    registry.add("bob", about("b"), b"x", None, limits)


def test_voices_expire(registry: VoiceRegistry, tmp_path: Path) -> None:
    soon = time.time() + 0.2
    stored = registry.add("", about("anna", expire_s=soon), b"x", RequestKey("r", b""), VoiceLimits(1, 100, 1))
    assert registry.remove_expired() == 0
    time.sleep(0.25)
    assert registry.find("", "anna") is None and ids(registry) == []
    assert registry.prepare("", "", RequestKey("r", b"other"), ROOMY) is None
    assert not registry.remove("", "anna"), "it is not there any more"
    assert registry.load(stored) is None
    registry.add(
        "", about("anna", expire_s=time.time() + 0.01), b"y", RequestKey("r", b"other"), VoiceLimits(1, 100, 1)
    )
    time.sleep(0.02)
    assert registry.remove_expired() == 1
    assert not list((tmp_path / "voices" / FILES).iterdir())


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


def test_many_may_open_a_new_folder_at_the_same_time(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:

        def make(number: int) -> None:
            with closing(VoiceRegistry(tmp_path)) as registry:
                registry.add("", about(f"voice-{number}"), b"x", None, ROOMY)

        list(threads.map(make, range(8)))
    with closing(VoiceRegistry(tmp_path)) as registry:
        assert len(ids(registry)) == 8


class Registries(RuleBasedStateMachine):
    """Two registries on one folder, against a dictionary."""

    folder: Path

    @initialize()
    def open(self) -> None:
        self.registries = [VoiceRegistry(self.folder / str(time.monotonic_ns()))]
        self.path = self.registries[0]._files.parent
        self.registries.append(VoiceRegistry(self.path))
        self.voices: dict[tuple[str, str], StoredVoice] = {}
        self.requests: dict[tuple[str, str], tuple[bytes, str]] = {}

    @rule(
        which=st.integers(0, 1),
        owner=st.sampled_from(["", "ada"]),
        name=st.sampled_from("abc"),
        request_id=st.sampled_from([None, "r", "s"]),
        digest=st.sampled_from([b"1", b"2"]),
    )
    def add(self, which: int, owner: str, name: str, request_id: str | None, digest: bytes) -> None:
        request = RequestKey(request_id, digest) if request_id else None
        before = self.requests.get((owner, request_id)) if request_id else None
        add = self.registries[which].add
        if before and before[0] != digest:
            with pytest.raises(RequestIdReused):
                add(owner, about(name), b"x", request, ROOMY)
        elif before:
            assert add(owner, about(name), b"x", request, ROOMY) == self.voices[owner, before[1]]
        elif (owner, name) in self.voices:
            with pytest.raises(VoiceExists):
                add(owner, about(name), b"x", request, ROOMY)
        else:
            self.voices[owner, name] = add(owner, about(name), name.encode() * 9, request, ROOMY)
            if request_id:
                self.requests[owner, request_id] = digest, name

    @rule(which=st.integers(0, 1), owner=st.sampled_from(["", "ada"]), name=st.sampled_from("abc"))
    def remove(self, which: int, owner: str, name: str) -> None:
        assert self.registries[which].remove(owner, name) == ((owner, name) in self.voices)
        self.voices.pop((owner, name), None)
        self.requests = {key: made for key, made in self.requests.items() if (key[0], made[1]) != (owner, name)}

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.registries[which].close()
        self.registries[which] = VoiceRegistry(self.path)

    @invariant()
    def both_agree(self) -> None:
        if hasattr(self, "voices"):
            for registry in self.registries:
                for owner in ("", "ada"):
                    found = registry.page(owner, "", everything, 100)
                    assert found == [voice for key, voice in sorted(self.voices.items()) if key[0] == owner]
            for (_, name), voice in self.voices.items():
                assert self.registries[0].load(voice) == name.encode() * 9
            assert len(list((self.path / FILES).iterdir())) == len(self.voices)

    def teardown(self) -> None:
        for registry in getattr(self, "registries", ()):
            registry.close()


def test_registries_agree_with_a_dictionary(tmp_path: Path) -> None:
    Registries.folder = tmp_path
    run_state_machine_as_test(Registries, settings=settings(max_examples=15, stateful_step_count=15, deadline=None))

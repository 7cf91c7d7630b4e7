"""What keeps the voices, be it a folder or a database: what is acknowledged stays, and limits hold."""

import hashlib
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from sonorant.service import command as subcommands
from sonorant.service.errors import RequestIdReused, VoiceExists, VoiceQuotaReached, VoiceStoreFailed
from sonorant.service.voices.folder import FILES
from sonorant.service.voices.opening import open_named
from sonorant.service.voices.postgres_store import PostgresVoices
from sonorant.service.voices.sqlite_store import VoiceRegistry
from sonorant.service.voices.store import RequestKey, StoredVoice, VoiceLimits, VoiceStore
from tests.service import postgres
from tests.service.voice_values import ROOMY, about, file_of

Places = Callable[[], Callable[..., VoiceStore]]


def everything(_: object) -> bool:
    return True


def ids(store: VoiceStore, owner: str = "") -> list[str]:
    return [voice.about.voice_id for voice in store.page(owner, "", everything, 10_000)]


@pytest.fixture(params=["folder", "database"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    """What makes an empty place, and tells how to open it: any number of times."""
    numbers = itertools.count()
    if request.param == "folder":
        return lambda: partial(VoiceRegistry, tmp_path / str(next(numbers)))
    cluster: postgres.Cluster = request.getfixturevalue("cluster")
    return lambda: partial(PostgresVoices, cluster.database(f"{tmp_path.name}-{next(numbers)}"))


@pytest.fixture
def store(places: Places) -> Iterator[VoiceStore]:
    with closing(places()()) as store:
        yield store


def test_a_voice_is_what_was_written_and_only_its_owner_s(store: VoiceStore) -> None:
    written = about("anna", labels={"mood": "calm"}, languages=("english",), display_name="Ännä", expire_s=2e9)
    stored = store.add("ada", written, b"x" * 100, None, ROOMY)
    assert store.find("ada", "anna") == stored and stored.about == written
    assert store.load(stored) == b"x" * 100
    assert store.find("bob", "anna") is None and ids(store, "bob") == []
    store.add("bob", about("anna"), b"y", None, ROOMY)  # ids are the owner's own
    with pytest.raises(VoiceExists):
        store.add("ada", about("anna"), b"z", None, ROOMY)
    with pytest.raises(VoiceExists):
        store.prepare("ada", "anna", None, ROOMY)
    assert store.remove("ada", "anna") and not store.remove("ada", "anna")
    assert store.load(stored) is None and store.find("bob", "anna") is not None


def test_repeated_requests_make_one_voice(store: VoiceStore) -> None:
    request = RequestKey("r1", b"digest")
    assert store.prepare("", "", request, ROOMY) is None
    first = store.add("", about("anna"), b"x", request, ROOMY)
    assert store.prepare("", "", request, ROOMY) == first
    assert store.add("", about("berta"), b"y", request, ROOMY) == first
    assert ids(store) == ["anna"]
    assert store.prepare("ada", "", request, ROOMY) is None, "request ids are the owner's own"
    with pytest.raises(RequestIdReused):
        store.add("", about("carla"), b"z", RequestKey("r1", b"other"), ROOMY)
    store.remove("", "anna")
    assert store.prepare("", "", request, ROOMY) is None


def test_pages_are_sorted_and_filtered(store: VoiceStore) -> None:
    for number in (3, 1, 4, 0, 2):
        store.add("", about(f"voice-{number}", labels={"odd": str(number % 2)}), b"x", None, ROOMY)
    assert ids(store) == [f"voice-{number}" for number in range(5)]
    odd = store.page("", "", lambda about: about.labels["odd"] == "1", 10)
    assert [voice.about.voice_id for voice in odd] == ["voice-1", "voice-3"]
    page = store.page("", "voice-1", everything, 2)
    assert [voice.about.voice_id for voice in page] == ["voice-2", "voice-3"]


def test_limits(store: VoiceStore) -> None:
    limits = VoiceLimits(max_voices=3, max_bytes=100, max_voices_of_owner=2)
    store.add("ada", about("a"), b"x" * 10, None, limits)
    with pytest.raises(VoiceQuotaReached, match="100 bytes"):
        store.add("ada", about("b"), b"x" * 91, None, VoiceLimits(3, 100, 2))
    store.add("ada", about("b"), b"x", None, limits)
    for attempt in (
        lambda: store.prepare("ada", "", None, limits),
        lambda: store.add("ada", about("c"), b"x", None, limits),
    ):
        with pytest.raises(VoiceQuotaReached, match="you have all 2 voices"):
            attempt()
    with pytest.raises(VoiceQuotaReached, match=r"^this API key may keep no voices$"):
        store.prepare("eve", "", None, VoiceLimits(max_voices=3, max_bytes=100, max_voices_of_owner=0))
    store.add("bob", about("a"), b"x", None, limits)
    with pytest.raises(VoiceQuotaReached, match="the server has all 3 voices"):
        store.add("bob", about("b"), b"x", None, limits)
    store.remove("ada", "a")
    store.add("bob", about("b"), b"x", None, limits)


def test_voices_expire(places: Places) -> None:
    now = [1000.0]
    with closing(places()(clock=lambda: now[-1])) as store:
        stored = store.add("", about("anna", expire_s=1100), b"x", RequestKey("r", b""), VoiceLimits(1, 100, 1))
        assert store.remove_expired() == 0
        now.append(1101)
        assert store.find("", "anna") is None and ids(store) == []
        assert list(store.everything()) == []
        assert store.prepare("", "", RequestKey("r", b"other"), ROOMY) is None
        assert not store.remove("", "anna"), "it is not there any more"
        assert store.load(stored) is None
        store.add("", about("anna", expire_s=1200), b"y", RequestKey("r", b"other"), VoiceLimits(1, 100, 1))
        now.append(1201)
        assert store.remove_expired() == 1
        assert store.check() == (0, [])


def test_many_may_open_a_new_place_at_the_same_time_and_none_exceeds_a_limit(places: Places) -> None:
    open_store, limits = places(), VoiceLimits(max_voices=5, max_bytes=10**6, max_voices_of_owner=10)

    def make(number: int) -> bool:
        with closing(open_store()) as store:
            try:
                store.add("", about(f"voice-{number}"), b"x", None, limits)
            except VoiceQuotaReached:
                return False
            return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(make, range(8))) == 5
    with closing(open_store()) as store:
        assert len(ids(store)) == 5


class Stores(RuleBasedStateMachine):
    """Two stores of one place, against a dictionary."""

    places: Places

    @initialize()
    def open(self) -> None:
        self.open_store = self.places()
        self.stores = [self.open_store(), self.open_store()]
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
        add = self.stores[which].add
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
        assert self.stores[which].remove(owner, name) == ((owner, name) in self.voices)
        self.voices.pop((owner, name), None)
        self.requests = {key: made for key, made in self.requests.items() if (key[0], made[1]) != (owner, name)}

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.stores[which].close()
        self.stores[which] = self.open_store()

    @invariant()
    def both_agree(self) -> None:
        if hasattr(self, "voices"):
            for store in self.stores:
                for owner in ("", "ada"):
                    found = store.page(owner, "", everything, 100)
                    assert found == [voice for key, voice in sorted(self.voices.items()) if key[0] == owner]
            for (_, name), voice in self.voices.items():
                assert self.stores[0].load(voice) == name.encode() * 9
            in_order = [(owner, voice) for (owner, _), voice in sorted(self.voices.items())]
            assert [(each.owner, each.voice) for each in self.stores[1].everything()] == in_order

    def teardown(self) -> None:
        for store in getattr(self, "stores", ()):
            store.close()


@pytest.mark.slow
def test_stores_agree_with_a_dictionary(places: Places) -> None:
    Stores.places = staticmethod(places)  # type: ignore[assignment]
    run_state_machine_as_test(Stores, settings=settings(max_examples=15, stateful_step_count=15))


@pytest.mark.slow
def test_voices_move_from_one_place_to_another_once(tmp_path: Path, cluster: postgres.Cluster) -> None:
    url, folder = cluster.database("moved"), str(tmp_path / "voices")
    request = RequestKey("r1", b"digest")
    with closing(open_named(folder)) as here:
        for number in range(7):
            here.add("ada", about(f"voice-{number}"), file_of(number), request if number == 3 else None, ROOMY)
        here.add("", about("anna", expire_s=1e11, labels={"a": "b"}), b"x", None, ROOMY)
        kept = list(here.everything())
        (tmp_path / "voices" / FILES / kept[-1].voice.file).write_bytes(b"damaged")
    for copied, there in ((7, 0), (0, 7)):
        moved = subprocess.run(
            [sys.executable, "-m", "sonorant.service", "voices", "migrate", folder, url], capture_output=True, text=True
        )
        assert moved.stdout == f"{copied} voices copied, {there} were there already, 1 left behind\n", moved.stderr
        assert "'voice-6' of 'ada'" in moved.stderr and moved.returncode == 1
    with closing(open_named(url)) as there_now:
        assert there_now.prepare("ada", "", request, ROOMY) is not None
        for each in kept[:-1]:
            found = there_now.find(each.owner, each.voice.about.voice_id)
            assert found is not None and found.about == each.voice.about
            assert hashlib.sha256(there_now.load(found) or b"").digest() == each.voice.file_digest


@pytest.mark.parametrize("source", ["mistyped", "file"])
@pytest.mark.parametrize("command", ["migrate", "rebuild"])
def test_nothing_moves_from_where_no_voices_are_kept(
    command: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder whose name is mistyped is not made, and is no success; a file is none."""
    (tmp_path / "file").touch()
    target = [f"{tmp_path}/copy"] if command == "migrate" else []
    monkeypatch.setattr(sys, "argv", ["", "voices", command, f"{tmp_path}/{source}", *target])
    with pytest.raises(SystemExit) as ended:
        subcommands.main()
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (1, "")
    assert err.startswith(f"sonorant-server: {'no voices are kept' if target else 'there are no voices'} in ")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_database_that_stops_and_starts_costs_what_is_asked_meanwhile_alone(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        cluster = postgres.Cluster(Path(folder))
        try:
            url = cluster.database("voices")
            with closing(PostgresVoices(url)) as store:
                stored = store.add("", about("anna"), b"x", None, ROOMY)
                cluster.stop()
                with pytest.raises(VoiceStoreFailed):
                    store.find("", "anna")
                with closing(PostgresVoices(url)) as late, pytest.raises(VoiceStoreFailed):
                    late.find("", "anna")  # opened while it is away
                cluster.start()
                store._database._gone_s = late._database._gone_s = -1e9  # a moment later
                assert store.find("", "anna") == late.find("", "anna") == stored
                late.close()
                with psycopg.connect(url, autocommit=True) as operator:
                    operator.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE application_name = 'sonorant' AND pid <> pg_backend_pid()"
                    )
                assert store.load(stored) == b"x", "a connection that was ended costs nothing"
        finally:
            cluster.stop()

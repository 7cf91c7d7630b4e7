"""No file of a folder of voices is lost, whatever becomes of its database; each case ends in a sentence with advice."""

import io
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from sonorant.service import command as subcommands
from sonorant.service.config import parse_args
from sonorant.service.doctor import _voices
from sonorant.service.errors import VoiceStoreFailed
from sonorant.service.voices.file import unpack
from sonorant.service.voices.folder import DATABASE, FILES, new_name, owner_in
from sonorant.service.voices.sqlite_store import VoiceRegistry
from sonorant.service.voices.store import RequestKey
from tests.own_mounts import in_namespace
from tests.service.fake_engine import FakeEngine
from tests.service.findings import finding_of
from tests.service.harness import served
from tests.service.voice_calls import clone
from tests.service.voice_calls import ids as served_ids
from tests.service.voice_values import ROOMY, file_of

OWNERS = ("ada", "bob/../é ✓", "")
NUM_VOICES = 6


def fill(folder: Path, first: int = 0) -> None:
    with closing(VoiceRegistry(folder)) as registry:
        for number in range(first, first + NUM_VOICES):
            about, _ = unpack(file_of(number))
            registry.add(OWNERS[number % len(OWNERS)], about, file_of(number), RequestKey(f"r{number}", b"x"), ROOMY)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with voices of which no file may be lost, whatever a test does."""
    folder = tmp_path / "voices"
    fill(folder)
    before = contents(folder / FILES)
    assert len(before) == NUM_VOICES
    yield folder
    after = contents(folder / FILES)
    assert before.items() <= after.items(), "a file was lost"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def voices_in(folder: Path) -> set[tuple[str, str]]:
    with closing(VoiceRegistry(folder)) as registry:
        found = {(each.owner, each.voice.about.voice_id) for each in registry.everything()}
        assert registry.check() == (len(found), [])
    return found


def refused(folder: Path, *advice: str) -> None:
    """A server does not start with this folder, and `doctor` fails, both with the same advice and without a change."""
    before = contents(folder) if not (folder / FILES).exists() else None
    with pytest.raises(VoiceStoreFailed) as failed:
        VoiceRegistry(folder)
    finding = finding_of(_voices, parse_args(["--voices-dir", str(folder)], {}))
    assert finding.verdict == "fail"
    for text in (str(failed.value), finding.text):
        for each in advice:
            assert each in text
    assert before is None or contents(folder) == before


@dataclass
class Ended:
    code: object
    stdout: str
    stderr: str


def command(*arguments: str) -> Ended:
    """Run a subcommand of `sonorant-server` here."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["sonorant-server", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        subcommands.main()
    return Ended(ended.value.code, out.getvalue(), err.getvalue())


def remove_database(folder: Path) -> None:
    (folder / DATABASE).unlink()


def empty_database(folder: Path) -> None:
    (folder / DATABASE).write_bytes(b"")


@pytest.mark.parametrize("lose", [remove_database, empty_database])
def test_a_lost_database_is_rebuilt_from_the_files(folder: Path, lose: Callable[[Path], None]) -> None:
    before = voices_in(folder)
    lose(folder)
    rebuild = f"sonorant-server voices rebuild {folder}"
    refused(folder, "is missing or empty, but the files of 6 voices are there", "Nothing was changed", rebuild)
    rebuilt = command("voices", "rebuild", str(folder))
    assert (rebuilt.stdout, rebuilt.code) == ("6 voices added, 0 files left as they are\n", 0), rebuilt.stderr
    assert voices_in(folder) == before
    again = command("voices", "rebuild", str(folder))
    assert again.stdout == "0 voices added, 0 files left as they are\n"


async def test_a_server_says_so_and_goes_on_after_it_was_rebuilt(tmp_path: Path) -> None:
    async with served(FakeEngine(task="base"), voices_dir=tmp_path) as server:
        await server.voices.CreateVoice(clone("anna"))
    remove_database(tmp_path)
    with pytest.raises(VoiceStoreFailed, match="voices rebuild"):
        async with served(FakeEngine(task="base"), voices_dir=tmp_path):
            pass
    assert command("voices", "rebuild", str(tmp_path)).code == 0
    async with served(FakeEngine(task="base"), voices_dir=tmp_path) as server:
        assert await served_ids(server) == ["anna"]


async def test_with_an_older_database_nothing_is_lost(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was made after the copy keeps its file; it is told of, and can be had back."""
    old = folder.parent / "old"
    shutil.copy(folder / DATABASE, old)
    fill(folder, NUM_VOICES)
    everything, files = voices_in(folder), contents(folder / FILES)
    shutil.copy(old, folder / DATABASE)
    async with served(FakeEngine(task="base"), voices_dir=folder):
        pass
    (warning,) = [record.message for record in caplog.records if "does not know 6 of the files" in record.message]
    assert f"sonorant-server voices rebuild {folder}" in warning
    finding = finding_of(_voices, parse_args(["--voices-dir", str(folder)], {}))
    assert finding.verdict == "fail" and warning in finding.text
    assert contents(folder / FILES) == files
    assert command("voices", "rebuild", str(folder)).stdout == "6 voices added, 0 files left as they are\n"
    assert voices_in(folder) == everything and contents(folder / FILES) == files


def test_a_voice_made_anew_meanwhile_stays(folder: Path) -> None:
    old = folder.parent / "old"
    shutil.copy(folder / DATABASE, old)
    fill(folder, NUM_VOICES)
    shutil.copy(old, folder / DATABASE)
    fill(folder, NUM_VOICES)  # the same ids and owners again
    rebuilt = command("voices", "rebuild", str(folder))
    assert rebuilt.stdout == "0 voices added, 6 files left as they are\n" and rebuilt.code == 1
    assert rebuilt.stderr.count("has another voice") == 6


@pytest.mark.parametrize("num_bytes", [100, 4096, 5000])
def test_a_truncated_database_is_refused_until_it_is_moved_away(folder: Path, num_bytes: int) -> None:
    before = voices_in(folder)
    os.truncate(folder / DATABASE, num_bytes)
    refused(folder, "is damaged", f"voices rebuild {folder}")
    assert "is damaged" in command("voices", "rebuild", str(folder)).stderr
    (folder / DATABASE).rename(folder.parent / "damaged")
    assert command("voices", "rebuild", str(folder)).code == 0
    assert voices_in(folder) == before


def test_a_log_that_may_have_voices_is_not_lost_with_its_database(folder: Path) -> None:
    with closing(VoiceRegistry(folder)):  # and the log is there as long as it is open
        log = (folder / f"{DATABASE}-wal").read_bytes()
        copy = folder.parent / "copy"
        shutil.copytree(folder, copy)
    fill(folder, NUM_VOICES)
    (copy / f"{DATABASE}-wal").write_bytes(log or b"log")
    remove_database(copy)
    assert f"move {DATABASE}-wal" in command("voices", "rebuild", str(copy)).stderr
    assert (copy / f"{DATABASE}-wal").exists()


def test_files_of_earlier_versions_need_their_owner(tmp_path: Path) -> None:
    (tmp_path / FILES).mkdir()
    (tmp_path / FILES / f"{'0' * 32}.safetensors").write_bytes(file_of(1))
    (tmp_path / FILES / f"{'1' * 32}.safetensors").write_bytes(file_of(2)[:-1])
    rebuilt = command("voices", "rebuild", str(tmp_path))
    assert rebuilt.stdout == "0 voices added, 2 files left as they are\n"
    assert "--owner NAME" in rebuilt.stderr and "it is no safetensors file" in rebuilt.stderr
    rebuilt = command("voices", "rebuild", str(tmp_path), "--owner", "ada")
    assert rebuilt.stdout == "1 voices added, 1 files left as they are\n"
    with closing(VoiceRegistry(tmp_path)) as registry:
        assert registry.find("ada", "voice-00001") is not None


def test_a_wrong_folder_keeps_its_files(tmp_path: Path) -> None:
    (tmp_path / FILES).mkdir()
    for name in ("letter.txt", "a.safetensors", f"{'0' * 32}.safetensors.bak", "b.part"):
        (tmp_path / FILES / name).write_text(name)
    refused(tmp_path, "is probably not the folder you mean", "--voices-dir")
    assert sorted(contents(tmp_path / FILES)) == sorted(os.listdir(tmp_path / FILES)) and len(os.listdir(tmp_path)) == 1
    for place in ("migrate", "rebuild"):
        arguments = (str(tmp_path), str(tmp_path / "copy")) if place == "migrate" else (str(tmp_path),)
        assert command("voices", place, *arguments).code == 1
    assert len(os.listdir(tmp_path)) == 1 and len(os.listdir(tmp_path / FILES)) == 4


def test_foreign_files_among_voices_stay(folder: Path) -> None:
    foreign = folder / FILES / "letter.txt.part"
    foreign.write_text("dear")
    assert len(voices_in(folder)) == NUM_VOICES
    assert foreign.read_text() == "dear"


def test_doctor_and_migrate_change_nothing(folder: Path) -> None:
    """Not even what a killed server left: it is for the next server to finish."""
    left = folder / FILES / f"{'0' * 32}-ada.safetensors.part"
    left.write_bytes(b"half")

    def everything() -> dict[str, tuple[bytes, int]]:
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}

    before = everything()
    finding = finding_of(_voices, parse_args(["--voices-dir", str(folder)], {}))
    assert (finding.verdict, finding.text[:4]) == ("pass", "6 of")
    copied = command("voices", "migrate", str(folder), str(folder.parent / "copy"))
    assert copied.stdout.startswith("6 voices copied"), copied.stderr
    assert everything() == before
    missing = folder.parent / "missing"
    assert finding_of(_voices, parse_args(["--voices-dir", str(missing)], {})).text.startswith("none yet in ")
    assert not missing.exists()


def test_two_servers_and_doctor_at_once(folder: Path) -> None:
    with closing(VoiceRegistry(folder)) as here, closing(VoiceRegistry(folder)) as there:
        about, _ = unpack(file_of(90))
        here.add("ada", about, file_of(90), None, ROOMY)
        assert finding_of(_voices, parse_args(["--voices-dir", str(folder)], {})).text.startswith("7 of ")
        with closing(VoiceRegistry(folder)):  # a third one finds nothing to finish
            pass
        assert there.find("ada", about.voice_id) is not None
        remove_database(folder)
        refused(folder, "is missing or empty")
        with pytest.raises(VoiceStoreFailed):
            VoiceRegistry(folder)


def test_what_a_kill_leaves_is_finished(folder: Path) -> None:
    """A kill between the steps of storing or deleting: the database decides."""
    names = sorted(contents(folder / FILES))
    stored, deleted = folder / FILES / names[0], folder / FILES / f"{'9' * 32}-ada.safetensors"
    data = stored.read_bytes()
    stored.rename(f"{stored}.part")  # its row is there, its name was to come
    deleted.with_name(f"{deleted.name}.part").write_bytes(b"x")  # its row is not there any more, or was never
    with closing(VoiceRegistry(folder)) as registry:
        assert registry.check() == (NUM_VOICES, [])
    assert stored.read_bytes() == data
    assert sorted(contents(folder / FILES)) == names


def test_only_its_user_may_read_it_in_a_folder_that_was_there(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with closing(VoiceRegistry(tmp_path)):
        for path in tmp_path.iterdir():
            assert path.stat().st_mode & 0o077 == 0, path
    (tmp_path / DATABASE).chmod(0o644)  # as earlier versions made it
    with closing(VoiceRegistry(tmp_path)):
        assert (tmp_path / DATABASE).stat().st_mode & 0o777 == 0o600


def test_owners_are_in_the_names() -> None:
    for owner in (*OWNERS, "a" * 64, "\x00\n%2F"):
        name = new_name(owner)
        assert owner_in(name) == owner and "/" not in name and len(name.encode()) < 255
    assert owner_in(new_name("✓" * 64)) is None, "too long for a file's name"
    assert owner_in("letter.safetensors") is None


def test_a_folder_that_is_read_only(folder: Path) -> None:
    open_it = (
        "import sys, pathlib\n"
        "from sonorant.service.voices.sqlite_store import VoiceRegistry\n"
        "VoiceRegistry(pathlib.Path(sys.argv[1]))"
    )
    script = (
        'mount --bind "$2" "$2"; mount -o remount,bind,ro "$2"; '
        '"$1" -c "$3" "$2" || true; "$1" -m tests.service.voices.doctor "$2"'
    )
    said = in_namespace(script, str(folder), open_it)
    assert f"{folder} cannot be written" in said.stderr and "--voices-dir" in said.stderr
    assert said.stdout.startswith("fail ") and f"this user cannot write into {folder}" in said.stdout


def test_a_full_disk_loses_nothing_and_lets_voices_be_deleted(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=3m none "$2"; exec "$1" -m tests.service.voices.full_disk "$2"'
    said = in_namespace(script, str(tmp_path))
    assert said.returncode == 0 and said.stdout.endswith("survived\n"), said.stdout + said.stderr


def test_damage_inside_the_database_is_found(folder: Path) -> None:
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        (pages,) = database.execute("PRAGMA page_count").fetchone()
    data = bytearray((folder / DATABASE).read_bytes())
    data[4096 * (pages - 1) :] = b"\xff" * 4096
    (folder / DATABASE).write_bytes(data)
    finding = finding_of(_voices, parse_args(["--voices-dir", str(folder)], {}))
    assert finding.verdict == "fail" and "is damaged" in finding.text

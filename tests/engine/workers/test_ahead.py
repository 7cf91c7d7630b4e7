"""What is to be compiled ahead, by whom, and that it is noted once everything was."""

import asyncio
import os
from pathlib import Path

import pytest

from sonorant.engine.card.card import GIB, Card
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.fork_server import ForkServer
from sonorant.engine.kernels.folder import wait_until_filled
from sonorant.engine.tools import doctor
from sonorant.engine.tools.doctor import Examined, Verdict
from sonorant.engine.workers import ahead
from sonorant.engine.workers.ahead import Noted, Wanted, compiling, note, noted

CARD = Card.of("a card", (9, 0), 80 * GIB, multiprocessors=132)
CONFIG = EngineConfig(BUILTIN_VOICE_DIR)
CORES = len(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def test_what_was_compiled_is_known_for_the_same_kernels_only() -> None:
    wanted, done = Wanted(CONFIG, CARD), Noted(150, 41.5)
    assert noted(wanted) is None
    note(wanted, done)
    assert noted(wanted) == done
    assert noted(Wanted(CONFIG.but(talker_device="cuda:1", hang_timeout_s=1.0), CARD)) == done
    assert noted(Wanted(CONFIG.but(num_slots=4), CARD)) is None
    assert noted(Wanted(CONFIG, Card.of("another card", (8, 9), 80 * GIB, multiprocessors=132))) is None


def test_a_note_that_cannot_be_read_or_written_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Wanted(CONFIG, CARD)
    wanted.note().write_text("{")
    assert noted(wanted) is None
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "not" / "there"))
    note(wanted, Noted(1, 1.0))
    assert noted(wanted) is None


def test_pairs_with_the_same_kernels_are_compiled_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "find_card", lambda device: None if device == "cpu" else CARD)
    configs = [CONFIG, CONFIG, CONFIG.but(num_slots=4), CONFIG.but(talker_device="cpu")]
    assert [each.config for each in ahead.wanted_by(configs)] == [CONFIG, configs[2]]


def test_the_doctor_tells_what_will_be_compiled_and_how_long_that_took(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def told(config: EngineConfig) -> tuple[Verdict, str]:
        return doctor._kernels(Examined([config]))

    monkeypatch.setattr(ahead, "find_card", lambda device: None if device == "cpu" else CARD)
    config = CONFIG.but(talker_device="cuda:0")
    will = f"the first start with these settings compiles 60 to 150, on {CORES} cores, into {tmp_path}"
    assert told(CONFIG.but(talker_device="cpu")) == (Verdict.PASS, "no GPU, so none are compiled")
    assert told(config) == (Verdict.WARN, will)
    note(Wanted(config, CARD), Noted(150, 41.5))
    assert told(config) == (Verdict.PASS, f"150 were compiled in 42 s; they are in {tmp_path}")
    assert told(config.but(num_slots=4)) == (Verdict.WARN, f"{will}; for others 150 took 42 s here")


async def test_nothing_is_started_where_nothing_is_to_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "MODULE", "no.such.module")
    async with compiling([CONFIG.but(talker_device="cpu")]):
        pass


@pytest.mark.parametrize("is_done", [True, False])
async def test_workers_wait_for_the_process_that_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    monkeypatch.setattr(ahead, "find_card", lambda device: CARD)
    monkeypatch.setattr(ahead, "MODULE", "tests.engine.workers.slow_compiler")
    monkeypatch.setattr(ahead, "WORKERS", ForkServer())
    monkeypatch.setenv("COMPILER_FOLDER", str(tmp_path))
    pid_pipe, end_pipe = tmp_path / "pid", tmp_path / "end"
    os.mkfifo(pid_pipe)
    os.mkfifo(end_pipe)
    async with asyncio.timeout(60):
        async with compiling([CONFIG]):
            waiting = asyncio.create_task(asyncio.to_thread(wait_until_filled))
            pid = int(await asyncio.to_thread(pid_pipe.read_text))
            assert not waiting.done()
            if is_done:
                await asyncio.to_thread(end_pipe.write_text, "")
                await waiting
        await waiting  # a server that stops stops compiling
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)

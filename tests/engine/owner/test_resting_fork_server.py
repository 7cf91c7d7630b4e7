"""The fork server rests where a large model speaks on the CPU, as memory is short there."""

from dataclasses import replace
from pathlib import Path

import pytest

from sonorant.engine import BUILTIN_VOICE_DIR, EngineConfig, EngineState, SharedPairs
from sonorant.engine.ipc.fork_server import WORKERS

CONFIG = EngineConfig.of(model=BUILTIN_VOICE_DIR, num_slots=4, max_queued_streams=2, stored_streams=2, cpu_threads=1)


@pytest.mark.parametrize(
    ("model", "is_large", "rests"),
    [
        (BUILTIN_VOICE_DIR, True, True),
        (BUILTIN_VOICE_DIR, False, False),
        (BUILTIN_VOICE_DIR.with_name("builtin_base"), True, False),
    ],
)
async def test_the_fork_server_rests_once_all_large_models_are_on_the_cpu(
    model: Path, is_large: bool, rests: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take memory for nothing; but processes that decode recordings are started at any time."""
    monkeypatch.setattr("sonorant.engine.owner.shared_pairs.is_large_on_the_cpu", lambda config: is_large)
    states: list[list[EngineState]] = []
    monkeypatch.setattr(WORKERS, "rest", lambda: states.append([pair.state for pair in owner._pairs]))
    owner = SharedPairs([replace(CONFIG, model=model)] * 2, 1)
    for pair in owner._pairs:
        pair.enter(EngineState.READY, "")
    assert states == [[EngineState.READY] * 2] * rests
    await owner.close()

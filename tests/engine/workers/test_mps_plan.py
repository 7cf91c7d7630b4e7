"""Who gets an MPS daemon: examples by name, and what holds for all settings and machines."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.config import EngineConfig, MpsMode
from sonorant.engine.workers.mps_plan import Machine, MpsPlan, Sharing, plan_mps

GPU = Machine(has_gpu=True, program="/usr/bin/nvidia-cuda-mps-control", has_daemon=False)
CPU = Machine(has_gpu=False, program=None, has_daemon=False)
MODES: tuple[MpsMode, ...] = ("auto", "true", "false")


def pair(talker: str, code2wav: str) -> EngineConfig:
    return EngineConfig.of(Path("model"), talker_device=talker, code2wav_device=code2wav)


@pytest.mark.parametrize(
    ("talker", "code2wav", "together"),
    [
        ("auto", "auto", True),
        ("auto", "cuda:0", True),
        ("cuda", "cuda:0", True),
        ("cuda:1", "cuda:1", True),
        ("cuda:0", "cuda:1", False),
        ("auto", "cuda:1", False),
        ("cuda:0", "cpu", False),
        ("cpu", "cpu", False),
    ],
)
def test_auto_is_for_a_talker_on_the_gpu_of_its_codec(talker: str, code2wav: str, together: bool) -> None:
    config = pair(talker, code2wav)
    assert plan_mps("auto", [config], GPU).sharing is (Sharing.OWN_DAEMON if together else Sharing.NONE)
    assert plan_mps("false", [config], GPU).sharing is (Sharing.TURNS if together else Sharing.NONE)
    assert plan_mps("auto", [pair("cpu", "cpu"), config], GPU) == plan_mps("auto", [config], GPU)
    assert plan_mps("auto", [config], CPU) == MpsPlan(Sharing.NONE)


def test_what_stands_against_it_is_told() -> None:
    shared = [pair("auto", "auto")]
    for mode in ("auto", "true"):
        missing = plan_mps(mode, shared, replace(GPU, program=None))
        assert missing.sharing is Sharing.TURNS
        assert missing.obstacle.endswith("is not installed; it comes with the NVIDIA driver")
        for devices in ("1", "0,2", "1,0", " 2", "0,GPU-8a5b"):
            renumbered = plan_mps(mode, shared, replace(GPU, visible_devices=devices))
            assert renumbered.sharing is Sharing.TURNS
            assert f"CUDA_VISIBLE_DEVICES={devices} has indices" in renumbered.obstacle
        for devices in (None, "", "0", "0,1", "0, 1,2", "GPU-8a5b", "GPU-8a5b,GPU-11c2", "MIG-77"):
            assert plan_mps(mode, shared, replace(GPU, visible_devices=devices)) == MpsPlan(Sharing.OWN_DAEMON)


devices = st.sampled_from(["auto", "cpu", "cuda", "cuda:0", "cuda:1"])
machines = st.builds(
    Machine,
    has_gpu=st.booleans(),
    program=st.sampled_from([None, "/usr/bin/nvidia-cuda-mps-control"]),
    has_daemon=st.booleans(),
    visible_devices=st.sampled_from([None, "0", "1", "0,1", "1,0", "GPU-8a5b"]),
)


@given(st.sampled_from(MODES), st.lists(st.builds(pair, devices, devices), min_size=1, max_size=4), machines)
def test_what_holds_for_every_plan(mode: MpsMode, configs: list[EngineConfig], machine: Machine) -> None:
    plan = plan_mps(mode, configs, machine)
    if plan.sharing is Sharing.OWN_DAEMON:
        assert mode != "false" and machine.program
        assert mode == "true" or (machine.has_gpu and not machine.has_daemon)
    if plan.obstacle:
        assert mode != "false" and plan.sharing is Sharing.TURNS
    if mode == "true":
        assert plan.sharing is Sharing.OWN_DAEMON or plan.obstacle, "what was asked for is there, or an error"
    elif not machine.has_gpu or all(config.talker.device == "cpu" for config in configs):
        assert plan == MpsPlan(Sharing.NONE), "nothing is started and nothing said"
    assert plan == plan_mps(mode, [*configs, pair("cpu", "cpu")], machine)

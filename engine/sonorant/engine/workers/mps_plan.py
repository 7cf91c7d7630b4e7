"""Decides whether workers on one GPU take turns or share it by an MPS daemon, and whose daemon. Pure.

The decision depends only on the settings and the machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sonorant.engine.config import EngineConfig, MpsMode, device_with_gpus

PROGRAM = "nvidia-cuda-mps-control"


@dataclass(frozen=True, slots=True)
class Machine:
    """What the plan needs to know of the machine; see `sonorant.engine.workers.mps.this_machine`."""

    has_gpu: bool
    program: str | None  # path of PROGRAM; None if it is not installed
    has_daemon: bool  # a daemon is running already, which workers find by themselves
    visible_devices: str | None = None  # CUDA_VISIBLE_DEVICES


class Sharing(StrEnum):
    NONE = "none"  # no talker is on the GPU of its codec
    TURNS = "turns"
    OWN_DAEMON = "own daemon"  # to be started
    THEIR_DAEMON = "their daemon"


@dataclass(frozen=True, slots=True)
class MpsPlan:
    sharing: Sharing
    obstacle: str = ""  # if a daemon was wanted but cannot be: why not, and what to do


def plan_mps(mode: MpsMode, configs: Sequence[EngineConfig], machine: Machine) -> MpsPlan:
    """Plan by `mode`: `auto` starts a daemon if a talker and its Code2Wav share a GPU and none runs yet; `true` always
    starts one; `false` never."""
    if mode != "true":
        if not (machine.has_gpu and any(_is_on_one_gpu(config) for config in configs)):
            return MpsPlan(Sharing.NONE)
        if machine.has_daemon:
            return MpsPlan(Sharing.THEIR_DAEMON)
        if mode == "false":
            return MpsPlan(Sharing.TURNS)
    if machine.program is None:
        return MpsPlan(Sharing.TURNS, f"{PROGRAM} is not installed; it comes with the NVIDIA driver")
    if _is_renumbered(machine.visible_devices):
        return MpsPlan(
            Sharing.TURNS,
            f"CUDA_VISIBLE_DEVICES={machine.visible_devices} has indices, which would mean other GPUs under MPS; "
            "use the UUIDs that nvidia-smi -L shows",
        )
    return MpsPlan(Sharing.OWN_DAEMON)


def _is_on_one_gpu(config: EngineConfig) -> bool:
    """Whether talker and Code2Wav share a GPU, given that the machine has one."""
    talker, code2wav = device_with_gpus(config.talker.device), device_with_gpus(config.code2wav.device)
    return talker == code2wav != "cpu"


def _is_renumbered(visible_devices: str | None) -> bool:
    """Whether CUDA_VISIBLE_DEVICES has indices that change under MPS: the daemon renumbers the GPUs it sees from 0, and
    its clients would apply the old indices to the new numbers."""
    names = [name.strip() for name in (visible_devices or "").split(",") if name.strip()]
    return any(name.isdecimal() for name in names) and names != [str(index) for index in range(len(names))]

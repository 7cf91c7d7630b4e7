"""Whether workers compute on a GPU in turns or by an MPS daemon, and whose: decided from settings and machine alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sonorant.engine.config import EngineConfig, MpsMode, device_with_gpus

PROGRAM = "nvidia-cuda-mps-control"


@dataclass(frozen=True, slots=True)
class Machine:
    """What the plan depends on; see `sonorant.engine.serving.mps.this_machine`."""

    has_gpu: bool
    program: str | None  # where PROGRAM lies
    has_daemon: bool  # somebody else's, that workers find by themselves
    visible_devices: str | None = None  # CUDA_VISIBLE_DEVICES


class Sharing(StrEnum):
    NONE = "none"  # no talker is on the GPU of its codec
    TURNS = "turns"
    OWN_DAEMON = "own daemon"  # to be started
    THEIR_DAEMON = "their daemon"


@dataclass(frozen=True, slots=True)
class MpsPlan:
    sharing: Sharing
    obstacle: str = ""  # where there are turns although a daemon was wanted: why, and what to do


def plan_mps(mode: MpsMode, configs: Sequence[EngineConfig], machine: Machine) -> MpsPlan:
    """`auto` wants a daemon where a talker and its codec share a GPU and none is there; `true` wants one anywhere."""
    if mode != "true":
        if not (machine.has_gpu and any(_is_on_one_gpu(config) for config in configs)):
            return MpsPlan(Sharing.NONE)
        if machine.has_daemon:
            return MpsPlan(Sharing.THEIR_DAEMON)
        if mode == "false":
            return MpsPlan(Sharing.TURNS)
    if machine.program is None:
        return MpsPlan(Sharing.TURNS, f"{PROGRAM} is not here; it comes with the NVIDIA driver")
    if _is_renumbered(machine.visible_devices):
        return MpsPlan(
            Sharing.TURNS,
            f"CUDA_VISIBLE_DEVICES={machine.visible_devices} has indices, which would mean other GPUs under MPS; "
            "use the UUIDs that nvidia-smi -L shows",
        )
    return MpsPlan(Sharing.OWN_DAEMON)


def _is_on_one_gpu(config: EngineConfig) -> bool:
    """On a machine that has a GPU."""
    talker, code2wav = device_with_gpus(config.talker.device), device_with_gpus(config.code2wav.device)
    return talker == code2wav != "cpu"


def _is_renumbered(visible_devices: str | None) -> bool:
    """The daemon numbers the devices that it sees from 0; its clients would look for the old numbers among those."""
    names = [name.strip() for name in (visible_devices or "").split(",") if name.strip()]
    return any(name.isdecimal() for name in names) and names != [str(index) for index in range(len(names))]

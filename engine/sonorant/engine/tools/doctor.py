"""Examines whether worker pairs can run on this machine: platform, torch, GPU, MPS, memory, checkpoints, rings.

Repairs nothing. Runs as a process of its own (`python -m sonorant.engine.tools.doctor` with a pickled Examined on
stdin), because it needs torch, and so that a driver that crashes the process is a finding, too.
"""

import json
import os
import pickle
import platform
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, astuple, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.config import EngineConfig, MpsMode
from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.ring import MACHINES, Ring
from sonorant.engine.kernels.folder import cache_folder
from sonorant.engine.sizes import listeners, real_time_factor
from sonorant.engine.tools.compiler import CannotCompile, check_compiler
from sonorant.engine.workers.ahead import last_noted, noted, wanted_by
from sonorant.engine.workers.auto import sizes_text, with_threads
from sonorant.engine.workers.mps import this_machine
from sonorant.engine.workers.mps_plan import Sharing, plan_mps
from sonorant.engine.workers.ring_sizes import RingSizes
from sonorant.machine import num_cores

T = TypeVar("T")

_DRIVER_FILE = Path("/proc/driver/nvidia/version")


class Verdict(StrEnum):
    PASS = "pass"
    WARN = "warn"  # it works, but not as well as it could
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class Examined:
    """What is to run here: a config for each worker pair, and whether they share a GPU through an MPS daemon."""

    configs: Sequence[EngineConfig]
    mps: MpsMode = "false"


def examine(examined: Examined) -> Iterator[Finding]:
    for subject, check in (
        ("platform", _platform),
        ("torch", _torch),
        ("gpu", _gpu),
        ("compiler", _compiler),
        ("kernels", _kernels),
        ("mps", _mps),
        ("sizes", _sizes),
    ):
        yield finding(subject, check, examined)
    models = {config.model: config for config in examined.configs}
    for config in models.values():
        yield finding("checkpoint", _checkpoint, config)
    yield finding("memory", _memory, examined)
    yield finding("speed", _speed, examined)
    yield finding("rings", _rings, examined)


def finding(
    subject: str,
    check: Callable[[T], tuple[Verdict, str]],
    examined: T,
    expected: tuple[type[Exception], ...] = (EngineError,),
) -> Finding:
    """Return what a check finds. The `expected` errors say for themselves what is wrong."""
    try:
        verdict, text = check(examined)
    except expected as error:
        verdict, text = Verdict.FAIL, str(error)
    except Exception as error:  # whatever is wrong with this machine
        verdict, text = Verdict.FAIL, f"{type(error).__name__}: {error}"
    return Finding(verdict, subject, text)


def _platform(examined: Examined) -> tuple[Verdict, str]:
    cores = num_cores()
    text = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {cores} cores to use"
    if (platform.system(), platform.machine()) not in MACHINES:
        return Verdict.FAIL, f"{text}; the server needs Linux on x86-64 or 64-bit Arm"
    if cores < 2:
        return Verdict.WARN, f"{text}; talker, codec and service share them: give the server two or more"
    return Verdict.PASS, text


def _torch(examined: Examined) -> tuple[Verdict, str]:
    import torch

    from sonorant.engine.cuda import why_no_device

    built_for = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU only"
    text = f"{torch.__version__}, built for {built_for}"
    if "cuda" in "".join(_device_names(examined)) and not torch.cuda.is_available():
        return Verdict.FAIL, f"{text}; the settings name a CUDA device and torch finds none: {why_no_device()}"
    return Verdict.PASS, text


def _device_names(examined: Examined) -> list[str]:
    """The devices of talkers, codecs and encoders."""
    return [
        name
        for config in examined.configs
        for name in (config.talker.device, config.code2wav.device, config.encoder_device)
    ]


def _gpu(examined: Examined) -> tuple[Verdict, str]:
    import torch

    from sonorant.engine.card.card import GIB
    from sonorant.engine.card.device import card_of, free_bytes
    from sonorant.engine.cuda import find_device, why_no_device

    names = _device_names(examined)
    devices = {find_device(name) for name in names}
    if not torch.cuda.is_available():
        hint = "" if "cpu" in names else f"; the CPU is used, which is slow: {why_no_device()}"
        return Verdict.PASS if not hint else Verdict.WARN, f"no CUDA device{hint}"
    driver = "unknown driver"
    with suppress(OSError):
        found = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", _DRIVER_FILE.read_text())
        driver = f"driver {found[0]}" if found else driver
    parts = []
    for device in sorted(devices, key=str):
        if device.type == "cpu":
            parts.append("cpu")
            continue
        card = card_of(device)
        assert card is not None
        if card.why_unfit:
            return Verdict.FAIL, card.why_unfit
        free, total = free_bytes(device) / GIB, card.memory_bytes / GIB
        torch.ones(1, device=device).add_(1).item()  # a driver too old for this torch fails here
        parts.append(f"{device} {card.name} ({card.architecture}), {free:.1f} of {total:.1f} GiB free")
    return Verdict.PASS, f"{'; '.join(parts)}; {driver}"


def _compiler(examined: Examined) -> tuple[Verdict, str]:
    import torch

    names = _device_names(examined)
    if not any("cuda" in name or (name == "auto" and torch.cuda.is_available()) for name in names):
        return _compiled()
    try:
        return Verdict.PASS, f"{check_compiler(os.environ)}, with Python's headers"
    except CannotCompile as error:
        return Verdict.FAIL, str(error)


def _compiled() -> tuple[Verdict, str]:
    from sonorant.engine.cpu.library import library

    if library() is not None:
        return Verdict.PASS, "the C functions for the CPU are there"
    how = "install gcc (Debian: gcc libc6-dev), then install sonorant-server again"
    return Verdict.WARN, f"none at installation, so the CPU takes several times as long; {how}"


def _kernels(examined: Examined) -> tuple[Verdict, str]:
    wanted = wanted_by(examined.configs)
    if not wanted:
        return Verdict.PASS, "no GPU, so none are compiled"
    found = [noted(each) for each in wanted]
    done = [f"{each.num_kernels} were compiled in {each.seconds:.0f} s" for each in found if each is not None]
    if len(done) == len(found):
        return Verdict.PASS, f"{', '.join(done)}; they are in {cache_folder()}"
    cores, last = num_cores(), last_noted()
    text = f"the first start with these settings compiles 60 to 150, on {cores} cores, into {cache_folder()}"
    if last is not None:
        text += f"; for others {last.num_kernels} took {last.seconds:.0f} s here"
    return Verdict.WARN, text


def _mps(examined: Examined) -> tuple[Verdict, str]:
    machine = this_machine()
    plan = plan_mps(examined.mps, examined.configs, machine)
    if plan.obstacle and examined.mps == "true":
        return Verdict.FAIL, f"--mps is true, but {plan.obstacle}"
    if plan.obstacle:
        return Verdict.WARN, f"talker and codec take turns: {plan.obstacle}"
    if plan.sharing is Sharing.OWN_DAEMON:
        return Verdict.PASS, f"the server will start {machine.program}"
    if plan.sharing is Sharing.THEIR_DAEMON:
        return Verdict.PASS, "a daemon is running"
    if plan.sharing is Sharing.TURNS:
        text = "off: talker and codec take turns on a GPU, which makes steps longer under load; leave --mps at auto"
        return Verdict.WARN, text
    return Verdict.PASS, "not needed: no talker and its codec share a GPU"


def _sizes(examined: Examined) -> tuple[Verdict, str]:
    return Verdict.PASS, "; ".join(sizes_text(config) for config in examined.configs)


def _checkpoint(config: EngineConfig) -> tuple[Verdict, str]:
    checkpoint = load_checkpoint(config.model)
    text = f"{checkpoint.name}: {checkpoint.task}, {len(checkpoint.talker.speaker_ids)} voices"
    if config.load_format == "dummy":
        return Verdict.WARN, f"{text}; load_format is dummy: its speech will be noise"
    from sonorant.engine.model.verify import verify_checkpoint

    verify_checkpoint(checkpoint)
    return Verdict.PASS, f"{text}; all tensors are there, in the right shapes"


def _memory(examined: Examined) -> tuple[Verdict, str]:
    """Compare the memory that all workers on a device need with what is free there."""
    from sonorant.engine.card.card import gib
    from sonorant.engine.card.device import free_bytes
    from sonorant.engine.cpu.choice import rounding_of
    from sonorant.engine.model.memory import MemoryNeed, code2wav_need, encoder_need, talker_need
    from sonorant.engine.talker.run.kv_cache import CUDA_SHARE

    needs: list[MemoryNeed] = []
    for config in examined.configs:
        checkpoint = load_checkpoint(config.model)
        rounding = rounding_of(checkpoint, config)
        needs += [talker_need(checkpoint, config, rounding=rounding), code2wav_need(checkpoint, config)]
    for config in {config.model: config for config in examined.configs}.values():  # one encoder for each checkpoint
        if (need := encoder_need(load_checkpoint(config.model), config)) is not None:
            needs.append(need)
    verdict, parts = Verdict.PASS, []
    for device in sorted({need.device for need in needs}, key=str):
        here = [need for need in needs if need.device == device]
        free, total = free_bytes(device), sum(need.total for need in here)
        weights, wanted = sum(need.weights for need in here), sum(need.wanted_state for need in here)
        text = f"{device}: {gib(weights)} for weights, {gib(wanted)} for streams in all slots, {gib(free)} free"
        if total > free:
            verdict, text = Verdict.FAIL, f"{text}; at least {gib(total)} needed: use fewer worker pairs or num_pages"
        elif wanted > CUDA_SHARE * (free - weights):
            verdict = max(verdict, Verdict.WARN, key=list(Verdict).index)
            text += "; unless streams are short, they will wait for KV pages while slots are free"
        parts.append(text)
    return verdict, "; ".join(parts)


def _speed(examined: Examined) -> tuple[Verdict, str]:
    """Say how many listeners this CPU bears, by frames of weights that mean nothing."""
    from sonorant.engine.cpu.choice import rounding_of
    from sonorant.engine.cpu.library import use_threads
    from sonorant.engine.cpu.work import rounded_work
    from sonorant.engine.tools.forecast import forecast

    configs = with_threads(examined.configs)
    rounded = {
        config.model: (config, checkpoint, rounding)
        for config in configs
        if (rounding := rounding_of(checkpoint := load_checkpoint(config.model), config)) is not None
    }
    if not rounded:
        return Verdict.PASS, "forecast only for a checkpoint whose weights are rounded on the CPU"
    use_threads(configs[0].cpu_threads)
    verdict, parts = Verdict.PASS, []
    for config, checkpoint, rounding in rounded.values():
        work, frame_s = rounded_work(checkpoint, rounding), 1 / checkpoint.frame_rate_hz
        steps_s, codec_s = forecast(checkpoint, config, rounding)
        in_turns = config.takes_turns
        factor = real_time_factor(steps_s, codec_s, frame_s, in_turns=in_turns)
        text = f"a second of {checkpoint.name} should take {factor:.1f} s"
        if factor <= 1:
            text += f", and {listeners(steps_s, codec_s, frame_s, in_turns=in_turns)} at once can be heard in real time"
        else:
            verdict = Verdict.WARN
            text += ", too long for a listener: use more cores, a smaller checkpoint or a GPU"
        read, multiplied = work.read_bytes / steps_s[1] / 1e9, work.convolutions / codec_s / 1e9
        parts.append(f"{text} (reads {read:.0f} GB/s; {multiplied:.0f} G multiplications)")
    return verdict, "; ".join(parts)


def _rings(examined: Examined) -> tuple[Verdict, str]:
    """Fill the rings, to see that there is memory for them. That records pass is for an utterance to show."""
    sizes = [
        size for config in examined.configs for size in astuple(RingSizes.of(config, load_checkpoint(config.model)))
    ]
    with ExitStack() as stack:
        for size in sizes:
            ring = stack.enter_context(closing(Ring(size)))
            while ring.write([bytes(ring.max_payload_bytes // 8)]):
                pass
    return Verdict.PASS, f"{len(sizes)}, {sum(sizes) / 2**20:.1f} MiB of shared memory in all"


def main() -> None:
    for finding in examine(pickle.load(sys.stdin.buffer)):
        print(json.dumps(asdict(finding)), flush=True)


if __name__ == "__main__":
    main()

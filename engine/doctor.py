"""What this machine is like for the engine: platform, torch, GPU, MPS, checkpoint, rings. Finds faults, mends nothing.

Run as a process of its own (`python -m engine.doctor` with a pickled EngineConfig on stdin), because it needs torch,
and so that a driver which takes the process down is a finding, too.
"""

import json
import os
import pickle
import platform
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, astuple, dataclass
from enum import StrEnum
from pathlib import Path

from engine.checkpoint import load_checkpoint
from engine.config import EngineConfig
from engine.errors import EngineError
from engine.ipc.ring import Ring
from engine.supervisor import RingSizes

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


def examine(config: EngineConfig) -> Iterator[Finding]:
    for subject, check in (
        ("platform", _platform),
        ("torch", _torch),
        ("gpu", _gpu),
        ("mps", _mps),
        ("checkpoint", _checkpoint),
        ("rings", _rings),
    ):
        yield _finding(subject, check, config)


def _finding(subject: str, check: Callable[[EngineConfig], tuple[Verdict, str]], config: EngineConfig) -> Finding:
    try:
        verdict, text = check(config)
    except EngineError as error:
        verdict, text = Verdict.FAIL, str(error)
    except Exception as error:  # whatever is wrong with this machine
        verdict, text = Verdict.FAIL, f"{type(error).__name__}: {error}"
    return Finding(verdict, subject, text)


def _platform(config: EngineConfig) -> tuple[Verdict, str]:
    cores = len(os.sched_getaffinity(0))
    text = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {cores} cores to use"
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return Verdict.FAIL, f"{text}; Linux on x86-64 is needed"
    if cores < 2:
        return Verdict.WARN, f"{text}; talker, codec and service share them, so give it two or more"
    return Verdict.PASS, text


def _torch(config: EngineConfig) -> tuple[Verdict, str]:
    import torch

    built_for = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU only"
    text = f"{torch.__version__}, built for {built_for}"
    if "cuda" in config.talker_device + config.code2wav_device and not torch.cuda.is_available():
        return Verdict.FAIL, f"{text}; a CUDA device is asked for and torch finds none"
    return Verdict.PASS, text


def _gpu(config: EngineConfig) -> tuple[Verdict, str]:
    import torch

    from engine.cuda import find_device

    devices = {find_device(name) for name in (config.talker_device, config.code2wav_device)}
    if not torch.cuda.is_available():
        hint = "" if "cpu" in (config.talker_device, config.code2wav_device) else "; the CPU is used, which is slow"
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
        properties = torch.cuda.get_device_properties(device)
        free, total = (size / 2**30 for size in torch.cuda.mem_get_info(device))
        torch.ones(1, device=device).add_(1).item()  # a driver too old for this torch fails here
        parts.append(
            f"{device} {properties.name} (sm_{properties.major}{properties.minor}), {free:.1f} of {total:.1f} GiB free"
        )
    return Verdict.PASS, f"{'; '.join(parts)}; {driver}"


def _mps(config: EngineConfig) -> tuple[Verdict, str]:
    import torch

    from engine.cuda import find_device

    talker, codec = find_device(config.talker_device), find_device(config.code2wav_device)
    if not torch.cuda.is_available() or "cpu" in (talker.type, codec.type):
        return Verdict.PASS, "not needed: not both stages are on a GPU"
    if _mps_is_active():
        share = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
        return (
            Verdict.PASS,
            f"active, {f'{share} % of the GPU per process' if share else 'without a limit per process'}",
        )
    if talker != codec:
        return Verdict.PASS, "not active, and not needed: each stage has a GPU of its own"
    return (
        Verdict.WARN,
        f"not active: talker and codec take turns on {talker}, which makes steps up to twice as long under load; "
        "start nvidia-cuda-mps-control -d before the server",
    )


def _mps_is_active() -> bool:
    """The control daemon reads from a pipe; without a reader it cannot be opened this way."""
    pipe = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control")
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _checkpoint(config: EngineConfig) -> tuple[Verdict, str]:
    checkpoint = load_checkpoint(config.model)
    text = f"{checkpoint.name}: {checkpoint.task}, {len(checkpoint.talker.speaker_ids)} voices"
    if config.load_format == "dummy":
        return Verdict.WARN, f"{text}; load_format is dummy: what it says will be noise"
    from engine.model.verify import verify_checkpoint, verify_codec_encoder

    verify_checkpoint(checkpoint)
    verify_codec_encoder(checkpoint)
    return Verdict.PASS, f"{text}; every tensor is there once, in its shape"


def _rings(config: EngineConfig) -> tuple[Verdict, str]:
    """Whether there is the memory; that records come through is for an utterance to show."""
    sizes = astuple(RingSizes.of(config, load_checkpoint(config.model)))
    with ExitStack() as stack:
        for size in sizes:
            ring = stack.enter_context(closing(Ring(size)))
            while ring.write([bytes(ring.max_payload_bytes // 8)]):
                pass
    return Verdict.PASS, f"three, {sum(sizes) / 2**20:.1f} MiB of shared memory in all"


def main() -> None:
    config = pickle.load(sys.stdin.buffer)
    for finding in examine(config):
        print(json.dumps(asdict(finding)), flush=True)


if __name__ == "__main__":
    main()

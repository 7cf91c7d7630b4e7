"""The C functions compiled for 64-bit Arm, run by an emulator, compute what those of this machine do: products and
convolutions of whole numbers the same bits, those of floats nearly the same, as their sums have another order.

Needs Debian's gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user.
"""

import importlib.util
import shutil
import struct
import subprocess
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from sonorant.engine.cpu.library import Kept, at, chosen, library
from sonorant.engine.cpu.model import FORMATS, packed
from sonorant.engine.cpu.packing import conv_of
from sonorant.engine.model.rounded import ROUNDINGS

COMPILER, EMULATOR, ROOT = "aarch64-linux-gnu-gcc", "qemu-aarch64", "/usr/aarch64-linux-gnu"
CPUS = {"any": "cortex-a72", "dotprod": "neoverse-n1", "i8mm": "max"}  # the first has no products of bytes
SOURCES = Path(__file__).parents[3] / "engine/sonorant/engine/cpu"
INPUTS, OUTPUTS = 384, 48  # three groups; a pair of tiles and one more
ROWS = (1, 2, 4, 15)
POSITIONS = 13

HAS_TOOLS = shutil.which(COMPILER) is not None and shutil.which(EMULATOR) is not None
ROUNDS_ONCE = (build := chosen()) is not None and build.stem != "cpu-any"  # a * b + c, as Arm does

pytestmark = [
    pytest.mark.slow,  # three compilations
    pytest.mark.skipif(not HAS_TOOLS, reason="the tools for 64-bit Arm are not here"),
    pytest.mark.skipif(not ROUNDS_ONCE, reason="this CPU has no fused products to compare with"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the test program is, one for each build: `arm-any` and others."""
    folder = tmp_path_factory.mktemp("arm")
    shutil.copytree(SOURCES / "c", folder / "c")
    shutil.copy(Path(__file__).with_name("arm.c"), folder)
    module = build_cpu()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", COMPILER)
        patch.setattr("platform.machine", lambda: "aarch64")
        patch.setattr(module, "FLAGS", ("-O1", *module.FLAGS[1:]))  # takes a quarter of the time of -O3
        assert module.build(folder)
    for name in CPUS:
        command = [COMPILER, "-O1", "-Ic", "arm.c", f"cpu-{name}.so", "-Wl,-rpath,$ORIGIN", "-o", f"arm-{name}"]
        subprocess.run(command, cwd=folder, check=True)
    return folder


def build_cpu() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_cpu", SOURCES.parents[2] / "build_cpu.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("build", CPUS)
def test_arm_computes_what_this_machine_does(program: Path, build: str) -> None:
    calls, expected, is_whole = [], [], []
    for name, number in FORMATS.items():
        for rows in ROWS:
            x, weight = noise(rows, INPUTS), noise(OUTPUTS, INPUTS)
            w = ROUNDINGS[name].pack(weight) if name in ROUNDINGS else packed(weight, name)
            y = torch.empty(rows, OUTPUTS)
            library().multiply_rows(at(y), at(x), at(w), rows, INPUTS, OUTPUTS, number)
            calls += [record(number, rows, INPUTS, OUTPUTS), array(x), array(w)]
            expected.append(y)
            is_whole.append(name in ROUNDINGS)
    for rounded in (False, True):
        x, weight = noise(POSITIONS + 6, 160), noise(48, 160, 3)  # a segment and a part of one
        kept, y = Kept(), torch.empty(POSITIONS, 48)
        conv = conv_of(kept, weight, noise(48), dilation=3, rounded=rounded)
        library().convolve_positions(at(y), at(x), kept.array("Conv", [conv]), POSITIONS)
        *scales, w, bias = (each for each in kept._all if isinstance(each, Tensor))
        calls += [record(-1, POSITIONS, 160, 48, 3, 3, rounded), *map(array, (x, w, bias, *(scales or [bias])))]
        expected.append(y)
        is_whole.append(rounded)
    (program / "calls").write_bytes(b"".join(calls))
    command = [EMULATOR, "-L", ROOT, "-cpu", CPUS[build], f"./arm-{build}", "calls", "results"]
    subprocess.run(command, cwd=program, check=True, timeout=60)
    results, begin = np.fromfile(program / "results", np.float32), 0
    for number, (y, whole) in enumerate(zip(expected, is_whole, strict=True)):
        result, begin = results[begin : begin + y.numel()].reshape(y.shape), begin + y.numel()
        if whole:
            np.testing.assert_array_equal(result, y, err_msg=f"call {number}")
        else:
            np.testing.assert_allclose(result, y, rtol=0, atol=1e-4, err_msg=f"call {number}")
    assert begin == len(results)


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def record(*sizes: int) -> bytes:
    return struct.pack(f"<q{len(sizes)}q", 8 * len(sizes), *sizes)


def array(tensor: Tensor) -> bytes:
    return struct.pack("<q", tensor.nbytes) + tensor.contiguous().view(torch.uint8).numpy().tobytes()

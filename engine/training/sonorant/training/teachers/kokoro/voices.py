"""The voices: each is the mean of several style vectors of Kokoro, so that it is nobody's.

None of the parts has the name of another company's voice. By spectrum and pitch, every sentence of a mixture is nearer
to the mixture's other sentences than to any of its parts'.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sonorant.training.teachers.kokoro.modules import STYLE_SIZE

FILE_NAME = "styles.safetensors"
MIXTURES: Mapping[str, Mapping[str, float]] = {
    "linden": {"am_michael": 0.4, "bm_lewis": 0.3, "im_nicola": 0.3},
    "wren": {"af_heart": 0.4, "bf_emma": 0.3, "bf_isabella": 0.3},
}


def mix(parts_folder: Path, mixture: Mapping[str, float]) -> Tensor:
    """The mean of the parts, [longest line, STYLE_SIZE]: Kokoro has one style vector for each length of a line."""
    parts = [share * _read(parts_folder / f"{name}.bin") for name, share in mixture.items()]
    return torch.stack(parts).sum(0)


def write_styles(parts_folder: Path, folder: Path) -> None:
    styles = {name: mix(parts_folder, mixture).half() for name, mixture in MIXTURES.items()}
    save_file(styles, folder / FILE_NAME)


def load_styles(folder: Path) -> Mapping[str, Tensor]:
    return {name: style.float() for name, style in load_file(folder / FILE_NAME).items()}


def _read(path: Path) -> Tensor:
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32).view(-1, STYLE_SIZE)

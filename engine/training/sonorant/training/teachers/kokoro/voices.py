"""The voices: each is the mean of several style vectors of Kokoro, so that it is nobody's.

A language whose sounds no part of the voices has learned borrows half of how they are made from a style that has.

None of the parts has the name of another company's voice. By spectrum and pitch, every sentence of a mixture is nearer
to the mixture's other sentences than to any of its parts'. The parts themselves are there for speakers that are made.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sonorant.training.speakers import PARTS_F0_HZ
from sonorant.training.teachers.kokoro.modules import MAX_TOKENS, STYLE_SIZE

FILE_NAME = "voices.safetensors"
PART_ROWS = 64  # of the vectors of a part, which differ little from one length of a line to the next
MIXTURES: Mapping[str, Mapping[str, float]] = {
    "linden": {"am_michael": 0.4, "bm_lewis": 0.3, "im_nicola": 0.3},
    "wren": {"af_heart": 0.4, "bf_emma": 0.3, "bf_isabella": 0.3},
}
# Style whose sounds the voices borrow in a language. Their own melody, pitch and pace stay.
LENDERS: Mapping[str, str] = {"spanish": "ef_dora", "french": "ff_siwis", "italian": "if_sara", "portuguese": "pf_dora"}
LENT = 0.5


def in_language(voice: str, language: str) -> str:
    """The name of a voice's style in a language; made speakers are the same in all."""
    return f"{voice}/{language}" if voice in MIXTURES and language in LENDERS else voice


def mix(parts_folder: Path, mixture: Mapping[str, float]) -> Tensor:
    """The mean of the parts, [longest line, STYLE_SIZE]: Kokoro has one style vector for each length of a line."""
    parts = [share * _read(parts_folder / f"{name}.bin") for name, share in mixture.items()]
    return torch.stack(parts).sum(0)


def write_styles(parts_folder: Path, folder: Path) -> None:
    styles = {name: mix(parts_folder, mixture).half() for name, mixture in MIXTURES.items()}
    for language, lender in LENDERS.items():
        lent = _read(parts_folder / f"{lender}.bin")
        styles |= {in_language(name, language): borrowed(styles[name], lent).half() for name in MIXTURES}
    rows = torch.arange(PART_ROWS) * MAX_TOKENS // PART_ROWS
    parts = {name: _read(parts_folder / f"{name}.bin")[rows].half() for name in PARTS_F0_HZ}
    save_file(styles | parts, folder / FILE_NAME)


def borrowed(style: Tensor, lender: Tensor) -> Tensor:
    """A style that makes its sounds half as the lender's. `STYLE_SIZE` says which half of a vector makes them."""
    sounds = STYLE_SIZE // 2
    return torch.cat([torch.lerp(style[:, :sounds].float(), lender[:, :sounds], LENT), style[:, sounds:].float()], 1)


def load_styles(folder: Path) -> Mapping[str, Tensor]:
    return {name: style.float() for name, style in load_file(folder / FILE_NAME).items()}


def style_of(styles: Mapping[str, Tensor], shares: Mapping[str, float], num_phones: int) -> Tensor:
    """The style [STYLE_SIZE] of a mixture that speaks a line of so many phones."""
    rows = [share * styles[name][(num_phones - 1) * len(styles[name]) // MAX_TOKENS] for name, share in shares.items()]
    return torch.stack(rows).sum(0)


def _read(path: Path) -> Tensor:
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32).view(-1, STYLE_SIZE)

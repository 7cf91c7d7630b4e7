"""Kokoro-82M for many sentences at once: the torch modules of the package kokoro, with padding that is not heard.

The modules normalize over time, so zeros after a shorter sentence would change its sound. Here statistics leave them
out, and every convolution sees zeros after each sentence's end, which is what it sees when the sentence is alone.
"""

import importlib.machinery
import json
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sonorant.training.teachers.kokoro import weights

STEP_SAMPLES = 600  # durations are in steps of 25 ms, at 24 kHz
STYLE_SIZE = 256  # the first half is for the decoder, the second for the prosody
MAX_TOKENS = 510
LENGTH_STEPS = 40  # batches are padded to multiples of one second, so that there are few shapes
EPS = 1e-5
VOICED_HZ = 50.0  # where the pitch is lower, there is none

_CONFIG: Mapping[str, Any] = {
    "n_token": 178,
    "hidden_dim": 512,
    "style_dim": 128,
    "n_layer": 3,
    "max_dur": 50,
    "dropout": 0.0,
    "text_encoder_kernel_size": 5,
    "n_mels": 80,
    "plbert": {
        "hidden_size": 768,
        "num_attention_heads": 12,
        "intermediate_size": 2048,
        "max_position_embeddings": 512,
        "num_hidden_layers": 12,
    },
    "istftnet": {
        "upsample_kernel_sizes": [20, 12],
        "upsample_rates": [10, 6],
        "gen_istft_hop_size": 5,
        "gen_istft_n_fft": 20,
        "resblock_dilation_sizes": [[1, 3, 5]] * 3,
        "resblock_kernel_sizes": [3, 7, 11],
        "upsample_initial_channel": 512,
    },
}


class Lengths:
    """How many steps each sentence of the batch has. Every layer's rate is a multiple of the steps' rate."""

    def __init__(self) -> None:
        self._steps: Tensor | None = None
        self._longest = 0

    def set(self, steps: Tensor, longest: int) -> None:
        self._steps, self._longest = steps, longest

    def mask(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """For x [sentences, channels, n], the mask [sentences, 1, n] of what is not padding, and its sums."""
        assert self._steps is not None
        rate, extra = divmod(x.shape[-1], self._longest)  # the last layers have one value more than a multiple
        lengths = (self._steps * rate + extra)[:, None, None]
        return torch.arange(x.shape[-1], device=x.device) < lengths, lengths


class MaskedAdaIN(nn.Module):
    """Instance normalization over what is not padding, scaled and shifted by the style."""

    def __init__(self, norm: nn.InstanceNorm1d, style: nn.Linear, lengths: Lengths) -> None:
        super().__init__()
        self.norm, self.fc, self._lengths = norm, style, lengths

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        mask, count = self._lengths.mask(x)
        gamma, beta = self.fc(style)[..., None].chunk(2, 1)
        mean = (x * mask).sum(-1, keepdim=True) / count
        variance = ((x - mean).square() * mask).sum(-1, keepdim=True) / count
        scale = torch.rsqrt(variance + EPS) * self.norm.weight[:, None]
        shift = self.norm.bias[:, None] - mean * scale
        out: Tensor = x * (scale * (1 + gamma)) + (shift * (1 + gamma) + beta)
        return out


class BatchedKokoro:
    def __init__(self, folder: Path, device: torch.device) -> None:
        self.device = device
        self.vocabulary = read_vocabulary(folder)
        self._lengths = Lengths()
        with _package(folder):
            self._model = _build(weights.load(folder), self._lengths).to(device)

    @torch.inference_mode()
    def speak(
        self, phones: Sequence[str], styles: Tensor, f0_hz: Tensor, stretch: Tensor
    ) -> list[tuple[Tensor, Tensor]]:
        """Speak every string of phones in the style of its row [sentences, STYLE_SIZE], with this median pitch (NaN:
        that of the style), and durations longer by the factor `stretch`; both [sentences].

        Returns (samples, duration of each phone in steps) of each; there is a pause before the first phone and after
        the last one, so there are two durations more than phones.
        """
        ids = [[0, *(self.vocabulary[phone] for phone in line), 0] for line in phones]
        num_tokens = torch.tensor([len(row) for row in ids])
        tokens = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in ids], batch_first=True).to(self.device)
        padding = (torch.arange(tokens.shape[1]) >= num_tokens[:, None]).to(self.device)
        styles = styles.to(self.device)
        model, prosody = self._model, styles[:, STYLE_SIZE // 2 :]
        encoded = model.bert_encoder(model.bert(tokens, attention_mask=(~padding).int())).transpose(1, 2)
        hidden = model.predictor.text_encoder(encoded, prosody, num_tokens, padding)
        durations = model.predictor.duration_proj(_lstm(model.predictor.lstm, hidden, num_tokens))
        durations = (
            (torch.sigmoid(durations).sum(-1) * stretch.to(self.device)[:, None])
            .round()
            .clamp(min=1)
            .long()
            .masked_fill(padding, 0)
        )
        steps = durations.sum(1)
        longest = -(-int(steps.max()) // LENGTH_STEPS) * LENGTH_STEPS
        self._lengths.set(steps, longest)
        spread = _alignment(durations, longest)
        pitch, energy = self._pitch(hidden.transpose(1, 2) @ spread, prosody, steps)
        pitch = moved(pitch, f0_hz.to(self.device))
        text = model.text_encoder(tokens, num_tokens, padding) @ spread
        samples = model.decoder(text, pitch, energy, styles[:, : STYLE_SIZE // 2]).flatten(1)
        return [
            (made[: int(n) * STEP_SAMPLES], row[:count])
            for made, n, row, count in zip(samples, steps, durations, num_tokens, strict=True)
        ]

    def _pitch(self, hidden: Tensor, style: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        predictor = self._model.predictor
        shared = _lstm(predictor.shared, hidden.transpose(1, 2), steps.cpu(), hidden.shape[2]).transpose(1, 2)
        curves = []
        for blocks, projection in ((predictor.F0, predictor.F0_proj), (predictor.N, predictor.N_proj)):
            x = shared
            for block in blocks:
                x = block(x, style)
            x = projection(x)
            curves.append((x * self._lengths.mask(x)[0])[:, 0])
        return curves[0], curves[1]


def read_vocabulary(folder: Path) -> Mapping[str, int]:
    """Kokoro's phones, one character each, and their ids."""
    vocabulary: Mapping[str, int] = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))["vocab"]
    return vocabulary


def _lstm(lstm: Any, x: Tensor, lengths: Tensor, total: int | None = None) -> Tensor:
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    out, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=total or x.shape[1])
    return out


def moved(pitch: Tensor, f0_hz: Tensor) -> Tensor:
    """Scale each curve [sentences, n] so that the median of what is voiced is `f0_hz`; left alone where that is NaN."""
    median = pitch.where(pitch > VOICED_HZ, torch.nan).nanmedian(1).values
    return pitch * (f0_hz / median).nan_to_num(1.0)[:, None]


def _alignment(durations: Tensor, longest: int) -> Tensor:
    """[sentences, tokens, steps]: one where the step belongs to the token."""
    ends = durations.cumsum(1)[..., None]
    step = torch.arange(longest, device=durations.device)
    return ((step < ends) & (step >= ends - durations[..., None])).float()


def _build(tensors: Mapping[str, Tensor], lengths: Lengths) -> Any:
    from kokoro.istftnet import AdaIN1d, Decoder
    from kokoro.modules import CustomAlbert, ProsodyPredictor, TextEncoder
    from transformers import AlbertConfig

    c = _CONFIG
    model: Any = nn.Module()
    model.bert = CustomAlbert(AlbertConfig(vocab_size=c["n_token"], **c["plbert"]))
    model.bert_encoder = nn.Linear(c["plbert"]["hidden_size"], c["hidden_dim"])
    model.predictor = ProsodyPredictor(c["style_dim"], c["hidden_dim"], c["n_layer"], c["max_dur"], c["dropout"])
    model.text_encoder = TextEncoder(c["hidden_dim"], c["text_encoder_kernel_size"], c["n_layer"], c["n_token"])
    model.decoder = Decoder(c["hidden_dim"], c["style_dim"], c["n_mels"], **c["istftnet"])
    for module in model.modules():
        if hasattr(module, "weight_g"):
            nn.utils.remove_weight_norm(module)
    own = model.state_dict()
    missing = [name for name in own if name not in tensors and not name.endswith(_DEFAULTS)]
    if missing:
        raise ValueError(f"the teacher's weights lack {', '.join(missing[:5])} and {max(0, len(missing) - 5)} more")
    model.load_state_dict({name: tensors[name].view_as(own[name]) for name in own if name in tensors}, strict=False)
    _mask(model, AdaIN1d, lengths)
    return model.eval().requires_grad_(False)


_DEFAULTS = ("norm.weight", "norm.bias", "position_ids", "token_type_ids", "pooler.weight", "pooler.bias")


def _mask(model: nn.Module, adain: type, lengths: Lengths) -> None:
    """Leave padding out of all statistics, and have every wide convolution see zeros there."""

    def hide(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0] * lengths.mask(inputs[0])[0],)

    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, adain):
                original: Any = child
                module.add_module(name, MaskedAdaIN(original.norm, original.fc, lengths))
    for part in (model.get_submodule("predictor"), model.get_submodule("decoder")):
        for module in part.modules():
            if isinstance(module, nn.Conv1d | nn.ConvTranspose1d) and module.kernel_size[0] > 1:
                module.register_forward_pre_hook(hide)


@contextmanager
def _package(folder: Path) -> Iterator[None]:
    """Make `import kokoro.modules` work from the folder without running the package's own __init__, which would import
    what only its command line needs."""
    package = types.ModuleType("kokoro")
    package.__path__ = [str(folder / "kokoro")]
    package.__spec__ = importlib.machinery.ModuleSpec("kokoro", None, is_package=True)
    sys.modules["kokoro"] = package
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "kokoro"]:
            del sys.modules[name]

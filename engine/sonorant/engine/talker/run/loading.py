"""Loads the talker's weights in the format that its steps need."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.checkpoint.fingerprint import fingerprint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cuda import compute_dtype
from sonorant.engine.model.kept_weights import keep, kept_path, read_kept
from sonorant.engine.model.rounded import Rounding, use_rounded
from sonorant.engine.model.talker import Talker
from sonorant.engine.model.verify import verify_checkpoint
from sonorant.engine.model.weights import TensorFile, init_random, load_module


def load_talker(checkpoint: Checkpoint, config: EngineConfig, device: torch.device, dtype: torch.dtype) -> Talker:
    """Return the talker with its weights as `dtype`, ready to run."""
    talker = _loaded(checkpoint, config, device, dtype)
    talker.prepare()
    return talker


def load_rounded_talker(checkpoint: Checkpoint, config: EngineConfig, rounding: Rounding) -> Talker:
    """Return the talker for the CPU with rounded matrices: from the file that an earlier start kept, or converted
    from the checkpoint and kept."""
    path = kept_path(fingerprint(checkpoint, config), rounding.conversion)
    if (kept := read_kept(path)) is None:
        talker = _rounded(checkpoint, config, rounding)
        keep(path, talker.state_dict())
        kept = read_kept(path)  # what is mapped takes no memory where nobody reads it
    if kept is not None:
        return _mapped(checkpoint, rounding, kept)
    return talker


def empty_rounded_talker(checkpoint: Checkpoint, rounding: Rounding) -> Talker:
    """Return a talker with rounded matrices that have no contents yet."""
    with torch.device("meta"):
        talker = Talker(checkpoint)
        talker.join()
        use_rounded(talker, rounding)
    return talker


def _rounded(checkpoint: Checkpoint, config: EngineConfig, rounding: Rounding) -> Talker:
    cpu = torch.device("cpu")
    talker = _loaded(checkpoint, config, cpu, compute_dtype("auto", checkpoint.dtype, torch.device("cuda")))
    talker.join()
    use_rounded(talker, rounding)
    return talker


def _mapped(checkpoint: Checkpoint, rounding: Rounding, kept: Mapping[str, Tensor]) -> Talker:
    talker = empty_rounded_talker(checkpoint, rounding)
    for name in talker.state_dict():
        parent, _, own = name.rpartition(".")
        setattr(talker.get_submodule(parent), own, nn.Parameter(kept[name], requires_grad=False))
    talker.eval()
    return talker


def _loaded(checkpoint: Checkpoint, config: EngineConfig, device: torch.device, dtype: torch.dtype) -> Talker:
    with torch.device("meta"):
        talker = Talker(checkpoint)
    if config.load_format == "dummy":
        init_random(talker, device, dtype, config.seed)
    else:
        verify_checkpoint(checkpoint)
        load_module(talker, TensorFile(checkpoint.folder / "model.safetensors"), "talker.", device, dtype)
    return talker

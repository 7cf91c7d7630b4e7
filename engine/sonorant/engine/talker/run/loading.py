"""Loads the talker's weights in the format that its steps need."""

import torch
from torch import nn

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cuda import compute_dtype
from sonorant.engine.model.int8 import use_int8
from sonorant.engine.model.kept_weights import keep, kept_path, read_kept
from sonorant.engine.model.layers import store_transposed
from sonorant.engine.model.talker import Talker
from sonorant.engine.model.verify import verify_checkpoint
from sonorant.engine.model.weights import TensorFile, init_random, load_module

INT8_CONVERSION = "int8-1"  # another number whenever `use_int8` makes other tensors of a checkpoint


def load_talker(checkpoint: Checkpoint, config: EngineConfig, device: torch.device, dtype: torch.dtype) -> Talker:
    """Return the talker with its weights as `dtype`, ready to run."""
    talker = _loaded(checkpoint, config, device, dtype)
    talker.prepare()
    return talker


def load_int8_talker(checkpoint: Checkpoint, config: EngineConfig) -> Talker:
    """Return the talker for the CPU with matrices of eight bits: from the file that an earlier start kept, or converted
    from the checkpoint and kept."""
    path = kept_path(checkpoint, config, INT8_CONVERSION)
    kept = read_kept(path)
    if kept is None:
        cpu = torch.device("cpu")
        talker = _loaded(checkpoint, config, cpu, compute_dtype("auto", checkpoint.dtype, torch.device("cuda")))
        talker.join()
        use_int8(talker)
        keep(path, talker.state_dict())
    else:
        with torch.device("meta"):
            talker = Talker(checkpoint)
            talker.join()
            use_int8(talker)
        for name in talker.state_dict():
            parent, _, own = name.rpartition(".")
            setattr(talker.get_submodule(parent), own, nn.Parameter(kept[name], requires_grad=False))
        talker.eval()
    store_transposed(talker.text_projection)
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

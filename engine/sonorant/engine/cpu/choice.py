"""Whether the talker's weights get eight bits on the CPU."""

import logging

import torch

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cpu.library import library
from sonorant.engine.cpu.model import can_run, fits
from sonorant.engine.cuda import find_device
from sonorant.engine.errors import EngineError
from sonorant.engine.model.int8 import fits_int8

log = logging.getLogger(__name__)


def uses_int8(checkpoint: Checkpoint, config: EngineConfig) -> bool:
    """Say whether the talker runs with weights of eight bits: if that is asked for, and by `auto` on the CPU for models
    that are too large for float32 there, unless `dtype` is set. If it cannot be, the log says why.

    Raises EngineError if it is asked for on a GPU.
    """
    weights = config.talker.weights
    if find_device(config.talker.device).type != "cpu":
        if weights == "int8":
            raise EngineError("talker_weights int8 is for the CPU; on a GPU leave it at auto")
        return False
    is_large = config.dtype == "auto" and not fits(checkpoint, torch.float32) and fits_int8(checkpoint)
    if weights != "int8" and not (weights == "auto" and is_large):
        return False
    why_not = ""
    if not (fits_int8(checkpoint) and can_run(checkpoint)):
        why_not = "the checkpoint's sizes are no multiples of 128"
    elif library() is None:
        why_not = "there was no C compiler at installation: install gcc, then sonorant-server again"
    if why_not:
        log.warning("the talker's weights stay as they are, which is several times slower than int8: %s", why_not)
    return not why_not

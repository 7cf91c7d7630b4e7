"""Whether the talker's weights are rounded on the CPU, and how."""

import logging

import torch

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cpu.library import library
from sonorant.engine.cpu.model import can_run, fits
from sonorant.engine.cuda import find_device
from sonorant.engine.errors import EngineError
from sonorant.engine.model.rounded import INT8, ROUNDINGS, Rounding, fits_rounded

log = logging.getLogger(__name__)


def rounding_of(checkpoint: Checkpoint, config: EngineConfig) -> Rounding | None:
    """Return how the talker's weights are rounded: as asked for, and by `auto` to eight bits on the CPU for models that
    are too large for float32 there, unless `dtype` is set. None if they stay as they are; if that was not wanted, the
    log says why.

    Raises EngineError if it is asked for on a GPU.
    """
    asked = ROUNDINGS.get(config.talker.weights)
    if find_device(config.talker.device).type != "cpu":
        if asked is not None:
            raise EngineError(f"talker_weights {asked.name} is for the CPU; on a GPU leave it at auto")
        return None
    is_large = config.dtype == "auto" and not fits(checkpoint, torch.float32) and fits_rounded(checkpoint)
    wanted = asked or (INT8 if is_large else None)
    if wanted is None:
        return None
    why_not = ""
    if not (fits_rounded(checkpoint) and can_run(checkpoint)):
        why_not = "the checkpoint's sizes are no multiples of 128"
    elif library() is None:
        why_not = "there was no C compiler at installation: install gcc, then sonorant-server again"
    if why_not:
        log.warning("the talker's weights stay as they are, which is several times slower than int8: %s", why_not)
    return None if why_not else wanted

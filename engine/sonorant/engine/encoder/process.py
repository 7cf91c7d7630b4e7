"""The encoder process: takes the samples of one recording at a time and answers with what cloning its voice needs.
Keeps nothing, and reads no files of strangers.

If anything goes wrong, only that recording fails and the process continues; if the process dies or hangs, the owner
starts another.
"""

import ctypes
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Protocol

import numpy as np

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.encoder.limits import NICENESS
from sonorant.engine.encoder.wire import Fields, encoding, serve
from sonorant.engine.errors import EncodingFailed
from sonorant.engine.ipc.handed import SocketEnd
from sonorant.engine.ipc.worker import report_loaded
from sonorant.engine.types import Float32Array, Int16Array
from sonorant.logs import start

log = logging.getLogger(__name__)

WARM_UP_S = 1.0  # on the CPU: the first recording initializes libraries

# On the CPU freed memory is kept for the next recording, up to KEPT_BYTES. To get 8,000 pages anew takes a quarter of
# the time of a recording of 5 s.
KEPT_BYTES, LARGEST_ARRAY_BYTES = 64 * 2**20, 32 * 2**20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt


class RecordingEncoder(Protocol):
    """The part of `sonorant.engine.encoder.reference.ReferenceEncoder` that is used here."""

    def encode(self, samples: Float32Array, *, with_codes: bool) -> tuple[Float32Array, Int16Array | None]: ...


def encode(encoder: RecordingEncoder, fields: Fields, data: bytes) -> tuple[Fields, bytes]:
    samples = np.frombuffer(bytearray(data), np.float32)
    try:
        x_vector, codes = encoder.encode(samples, with_codes=bool(fields["with_codes"]))
    except Exception as error:
        log.exception("a recording of %d samples could not be encoded", len(samples))
        what = type(error).__name__
        raise EncodingFailed(f"the recording could not be encoded ({what}); try again, or give another") from error
    if not np.isfinite(x_vector).all():
        raise EncodingFailed("the speaker encoder gave values that are not finite; give another recording")
    return {}, x_vector.tobytes() + (b"" if codes is None else codes.tobytes())


def _keep_freed_memory() -> None:
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:  # glibc has it
        mallopt(_M_MMAP_THRESHOLD, LARGEST_ARRAY_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


def main(config: EngineConfig, end: SocketEnd, ready: Connection) -> None:
    """Entry of the child process."""
    encoder = report_loaded("encoder", ready, lambda: _load(config))
    serve("encoder", end, partial(encode, encoder))


def _load(config: EngineConfig) -> tuple[RecordingEncoder, Mapping[str, object]]:
    import torch  # here, because the parent imports this module and must stay without torch

    from sonorant.engine.card.device import free_bytes
    from sonorant.engine.cpu.library import leave_cores_to_functions, use_threads
    from sonorant.engine.cuda import use_device
    from sonorant.engine.encoder.reference import ReferenceEncoder
    from sonorant.engine.model.memory import check_fit, encoder_need

    device = use_device(config.encoder_device)
    if device.type == "cpu":
        os.nice(NICENESS)  # first, as threads are as nice as what starts them
    use_threads(config.threads("encoder"))
    checkpoint = load_checkpoint(config.model)
    if (need := encoder_need(checkpoint, config)) is not None:
        check_fit("encoder", need, free_bytes(device))
    start.phase("device")
    encoder = ReferenceEncoder(checkpoint, config)
    if device.type == "cuda":
        # Codes are the nearest of many entries: with the 10 bits of TF32 it would often be another one.
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        encoder.prepare()
    else:
        encoder.load()
        _keep_freed_memory()
        if encoder.is_compiled:
            leave_cores_to_functions()
        sound = np.random.default_rng(0).uniform(-0.1, 0.1, round(WARM_UP_S * encoder.sample_rate_hz))
        with suppress(EncodingFailed):
            encode(encoder, encoding(with_codes=True), sound.astype(np.float32).tobytes())
    start.phase("weights")
    return encoder, {"device": str(device), "threads": config.threads("encoder")}

"""The encoder process: takes one recording at a time and answers with what cloning its voice needs. Keeps nothing.

If a recording cannot be used, the answer says so. If anything else goes wrong, only that recording fails and the
process continues; if the process dies or hangs, the engine starts another.
"""

import logging
from collections.abc import Mapping
from io import BufferedRWPair
from multiprocessing.connection import Connection
from typing import Protocol

import numpy as np

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.encoder.limits import lower_priority, memory_limit, silent_stderr
from sonorant.engine.encoder.recording import read_upload
from sonorant.engine.encoder.wire import Answer, Request, Want, read_request, write_answer
from sonorant.engine.errors import EncodingFailed, InvalidRecording
from sonorant.engine.ipc.inherited import SocketEnd
from sonorant.engine.ipc.worker import report_loaded
from sonorant.engine.types import Float32Array, Int16Array

log = logging.getLogger(__name__)

DECODING_BYTES = 256 * 1024 * 1024  # the longest recording at the highest rate takes less than a third of it


class Encoder(Protocol):
    """The part of `sonorant.engine.model.reference.ReferenceEncoder` that is used here."""

    @property
    def sample_rate_hz(self) -> int: ...

    def x_vector(self, samples: Float32Array) -> Float32Array: ...

    def codes(self, samples: Float32Array) -> Int16Array: ...


def serve(stream: BufferedRWPair, encoder: Encoder) -> None:
    """Answer requests until the engine is gone."""
    while (request := read_request(stream)) is not None:
        write_answer(stream, _answer(request, encoder))


def _answer(request: Request, encoder: Encoder) -> Answer | InvalidRecording | EncodingFailed:
    try:
        with memory_limit(DECODING_BYTES), silent_stderr():
            recording = read_upload(request.audio, encoder.sample_rate_hz)
        if request.want is Want.NOTHING:
            return Answer(recording.info)
        x_vector = encoder.x_vector(recording.samples)
        if not np.isfinite(x_vector).all():
            return EncodingFailed("the speaker encoder gave values that are not finite; give another recording")
        codes = encoder.codes(recording.samples) if request.want is Want.X_VECTOR_AND_CODES else None
        return Answer(recording.info, x_vector, codes)
    except InvalidRecording as error:
        return error
    except Exception as error:
        log.exception("a recording of %d bytes could not be encoded", len(request.audio))
        what = "decoding it took too much memory" if isinstance(error, MemoryError) else type(error).__name__
        return EncodingFailed(f"the recording could not be encoded ({what}); give it as a WAV file, or give another")


def main(config: EngineConfig, end: SocketEnd, ready: Connection) -> None:
    """Entry of the child process."""
    encoder = report_loaded("encoder", ready, lambda: _load(config))
    try:
        with end.socket, end.socket.makefile("rwb") as stream:
            serve(stream, encoder)
    except (BrokenPipeError, ConnectionResetError):
        log.info("the engine is gone, encoder stops")


def _load(config: EngineConfig) -> tuple[Encoder, Mapping[str, object]]:
    lower_priority()
    import torch  # here, because the parent imports this module and must stay without torch

    from sonorant.engine.cuda import use_device
    from sonorant.engine.model.reference import ReferenceEncoder

    torch.set_num_threads(config.threads("encoder"))
    device = use_device(config.encoder.device)
    encoder = ReferenceEncoder(load_checkpoint(config.model), config)
    encoder.load()
    return encoder, {"device": str(device), "threads": torch.get_num_threads()}

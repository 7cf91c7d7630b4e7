"""Imports the modules of all workers, once, in the fork server; see sonorant.engine.ipc.fork_server.

No import here may initialize CUDA, which does not survive a fork.
"""

from importlib.metadata import version

from sonorant.engine.ipc.deferred import UNUSED_OF_TORCH, defer

if version("torch").endswith("+cpu"):
    defer(*UNUSED_OF_TORCH)

import torch

import sonorant.engine.code2wav.process
import sonorant.engine.code2wav.run.runner
import sonorant.engine.encoder.decoding
import sonorant.engine.encoder.process
import sonorant.engine.encoder.reference
import sonorant.engine.model.memory
import sonorant.engine.talker.process
import sonorant.engine.talker.run.runner
import sonorant.engine.talker.run.speech_sample

if torch.version.cuda is not None:  # only such a torch brings Triton along
    from triton.runtime.cache import triton_key

    import sonorant.engine.model.codec.code2wav_fused
    import sonorant.engine.talker.run.fused  # noqa: F401

    triton_key()  # it reads all of Triton, and is kept

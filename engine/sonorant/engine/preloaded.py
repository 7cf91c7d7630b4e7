"""Imports the modules of all workers, once, in the fork server; see sonorant.engine.ipc.fork_server.

No import here may initialize CUDA, which does not survive a fork.
"""

import contextlib
import os

import sonorant.engine.code2wav.process
import sonorant.engine.code2wav.run.runner
import sonorant.engine.encoder.decoding
import sonorant.engine.encoder.process
import sonorant.engine.model.memory
import sonorant.engine.model.reference
import sonorant.engine.talker.process
import sonorant.engine.talker.run.runner
import sonorant.engine.talker.run.speech_sample  # noqa: F401
from sonorant.engine.config import CACHE_MANAGER

with contextlib.suppress(ImportError):
    import av  # noqa: F401  decodes what phones and browsers record, where it is installed

os.environ["TRITON_CACHE_MANAGER"] = CACHE_MANAGER

"""A process that decodes recordings of strangers, one at a time: to samples, or to what is wrong with them.

It has little memory for that, a low priority, and no model. If anything but the recording goes wrong, only that
recording fails and the process continues; if it dies or hangs, the owner starts another.
"""

import logging
import os
from dataclasses import asdict
from multiprocessing.connection import Connection

from sonorant.engine.encoder import containers
from sonorant.engine.encoder.limits import memory_limit, silent_stderr
from sonorant.engine.encoder.recording import read_upload
from sonorant.engine.encoder.wire import Fields, serve
from sonorant.engine.errors import EncodingFailed, InvalidRecording
from sonorant.engine.ipc.handed import SocketEnd
from sonorant.engine.ipc.worker import report_loaded

log = logging.getLogger(__name__)

DECODING_BYTES = 256 * 1024 * 1024  # the longest recording at the highest rate takes less than a third of it


def decode(fields: Fields, data: bytes) -> tuple[Fields, bytes]:
    try:
        with memory_limit(DECODING_BYTES), silent_stderr():
            found = read_upload(data, int(fields["rate_hz"]))
    except InvalidRecording:
        raise
    except Exception as error:
        log.exception("a recording of %d bytes could not be decoded", len(data))
        what = "decoding it took too much memory" if isinstance(error, MemoryError) else type(error).__name__
        message = f"the recording could not be decoded ({what}); give it as a WAV file, or give another"
        raise EncodingFailed(message) from error
    return asdict(found.info), found.samples.tobytes()


def main(niceness: int, end: SocketEnd, ready: Connection) -> None:
    """Entry of the child process."""
    containers.load()  # here, where no limit of memory holds yet; workers never need it
    report_loaded("decoder", ready, lambda: (os.nice(niceness), {}))
    serve("decoder", end, decode)

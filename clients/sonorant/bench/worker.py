"""A client process: reads its share of each load from stdin and writes its measurements to stdout.

    in   share       out  None once connected, or the status and message of the error
    in   start_s     out  Measured, when all utterances that count are over

Times are those of CLOCK_MONOTONIC, which all processes of a machine share.
"""

import asyncio
import ctypes
import gc
import signal
import sys
from contextlib import AbstractAsyncContextManager
from typing import IO

from sonorant.bench.grpc_speech import grpc_speaker
from sonorant.bench.loads import GRPC, Share
from sonorant.bench.measure import measure
from sonorant.bench.records import receive, send
from sonorant.bench.speakers import Speaker, SpeakingFailed


async def _serve(stdin: IO[bytes], stdout: IO[bytes]) -> None:
    loop = asyncio.get_running_loop()
    while (share := await loop.run_in_executor(None, receive, stdin)) is not None:
        share.speech.voices.warm_up()
        try:
            async with _speaker(share) as speaker:
                send(stdout, None)
                start_s = await loop.run_in_executor(None, receive, stdin)
                if start_s is None:
                    return
                gc.collect()
                gc.disable()  # a collection would delay everything that is measured; a load lasts only minutes
                try:
                    measured = await measure(share, speaker, start_s)
                finally:
                    gc.enable()
                send(stdout, measured)
        except SpeakingFailed as error:
            send(stdout, (error.status, str(error)))


def _speaker(share: Share) -> AbstractAsyncContextManager[Speaker]:
    """A speaker for the share's protocol. Raises SpeakingFailed if the server cannot be reached."""
    if share.target.protocol in GRPC:
        return grpc_speaker(share.target, share.speech, share.keys)
    try:
        from sonorant.bench.http_speech import http_speaker  # aiohttp is an extra
    except ImportError:
        raise SpeakingFailed("CLIENT", "--openai needs aiohttp: pip install 'sonorant[bench]'") from None
    return http_speaker(share.target, share.speech, share.keys)


def main() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: do not outlive a parent that was killed
    stdout, sys.stdout = sys.stdout.buffer, sys.stderr  # keep what libraries print out of the records
    serving = _serve(sys.stdin.buffer, stdout)
    try:
        import uvloop  # an extra: without it, the client is late under less load, and its row says so
    except ImportError:
        asyncio.run(serving)
    else:
        uvloop.run(serving)


if __name__ == "__main__":
    main()

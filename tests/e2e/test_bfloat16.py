"""A talker that computes in bfloat16, on the CPU: embeddings without sense do nothing to who speaks after them."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.embeddings import largest_value
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_MAX_AUDIO
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.e2e.server_process import ServerProcess
from tests.service.harness import Stub, assert_same_audio, failure
from tests.tiny_checkpoint import write_tiny_checkpoint

SAMPLING = {"do_sample": False, "subtalker_do_sample": False, "ignore_eos": True, "max_frames": 8, "seed": 7}
TEXTS = ("Hello there.", "The quick brown fox.", "One, two, three.", "And so on.")
HIDDEN = 32
# So few pages that each stream gets those of the one before it.
FEW_PAGES = ("--num-slots", "2", "--max-context", "64", "--num-pages", "8")
SETTINGS = ("--device", "cpu", "--dtype", "bfloat16", "--cpu-threads", "1", *FEW_PAGES)


def spoken(stub: Any, text: str, values: list[float]) -> Any:
    config = {"voice": {"speaker_embedding": {"values": values}}, "sampling": SAMPLING}
    return stub.Synthesize(SynthesizeRequest(text=text, config=config))


@pytest.mark.slow
@pytest.mark.rare
async def test_no_embedding_changes_what_others_say_after_it(tmp_path: Path) -> None:
    model = write_tiny_checkpoint(tmp_path / "tiny", "base")
    largest = largest_value(load_checkpoint(model))
    plain = np.linspace(-0.5, 0.5, HIDDEN).tolist()
    signs = [(-1.0) ** n for n in range(HIDDEN)]
    with ServerProcess(tmp_path / "log", "--model", str(model), *SETTINGS) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = Stub(channel)
            for _ in range(2):  # the second time with pages that were written before
                before = [await spoken(stub, text, plain) for text in TEXTS]
            for refused in (np.finfo(np.float32).max, 65504.0 * 1.01, largest * 1.01):
                for values in ([float(refused)] * HIDDEN, [float(refused) * sign for sign in signs]):
                    code, _, details = await failure(spoken(stub, TEXTS[0], values))
                    assert code == grpc.StatusCode.INVALID_ARGUMENT, details
            for value in (largest, 1e-38, 0.0):
                odd = [spoken(stub, text, [0.999 * value * sign for sign in signs]) for text in TEXTS]
                assert {clip.reason for clip in await asyncio.gather(*odd)} == {FINISH_REASON_MAX_AUDIO}
            after = [await spoken(stub, text, plain) for text in TEXTS]
    for one, other in zip(before, after, strict=True):
        assert one.stats.codec_frames == other.stats.codec_frames == SAMPLING["max_frames"]
        assert_same_audio(one.audio[44:], other.audio[44:])

"""A caller who says of everything that it goes on: the places and the turns of others are still theirs."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2

from sonorant.service.rpc.speech import RESUMING
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import frame_codes
from tests.service.harness import Served, Transcript, eventually, read_until, say, served
from tests.service.keys import ADA, BOB, bearer, table

NUM_PLACES = 16  # of two callers, so that an even share is 8, and 2 are kept for who has fewer
TEXT = "Hello."


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    path.write_text(table("ada", ADA) + table("bob", BOB))
    return path


async def resume(server: Served, key: str) -> Any:
    """A session with one utterance, of which one frame was heard elsewhere."""
    codes = bytes(code for value in frame_codes(TEXT, 0) for code in value.to_bytes(2, "little"))
    message = speak_pb2.Resume(
        checkpoint="0123456789abcdef",
        replay=synthesis_pb2.SynthesisConfig(sampling={"seed": 7}),
        received_samples=4000,
        segments=[audio_pb2.SegmentCodes(segment=0, codes=codes * 2)],
    )
    call = server.stub.Speak(metadata=(*bearer(key), (RESUMING, "1")))
    for request in (
        speak_pb2.SpeakRequest(config={"resumable": True}),
        speak_pb2.SpeakRequest(utterance_id="u", resume=message),
        say(TEXT, "u"),
    ):
        await call.write(request)
    await read_until(call, Transcript(), "session")
    return call


async def test_it_gets_neither_the_last_places_nor_all_the_first_turns(keys: Path) -> None:
    engine = FakeEngine(max_streams=NUM_PLACES)
    engine.hold()
    async with served(engine, api_keys=keys) as server:
        calls = [await resume(server, ADA) for _ in range(14)]
        await eventually(lambda: engine.num_opened, 14)
        assert engine.in_turn == [False] * 8 + [True] * 6, "an even share goes ahead of others"

        refused = await resume(server, ADA)
        transcript = Transcript()
        transcript.responses.append(speak_pb2.SpeakResponse())  # its session was told already
        await read_until(refused, transcript, "done")
        assert transcript.done["u"].error.code == code_pb2.RESOURCE_EXHAUSTED

        calls += [await resume(server, BOB) for _ in range(2)]
        await eventually(lambda: engine.num_opened, NUM_PLACES)
        assert engine.in_turn[-1] is False


async def test_it_leaves_half_of_the_last_sessions_to_others(keys: Path) -> None:
    engine = FakeEngine()
    async with served(engine, api_keys=keys, max_sessions=16) as server:
        calls = [await resume(server, ADA) for _ in range(14)]
        refused = server.stub.Speak(metadata=(*bearer(ADA), (RESUMING, "1")))
        assert await refused.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        calls += [await resume(server, BOB) for _ in range(2)]

"""A server freezes or is killed in the middle of a sentence, or connections are cut: listeners hear it to its end."""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.rpc import code_pb2

from sonorant.client import (
    AudioChunk,
    Resumed,
    SpeechClient,
    UtteranceDone,
    synthesis_config,
    utterance_config,
    voice_mix,
)
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_COMPLETED, FINISH_REASON_FAILED, SynthesisConfig
from tests.cutting_proxy import CuttingProxy
from tests.e2e.server_process import ServerProcess
from tests.service.harness import assert_same_audio, eventually

TEXT = "Words may come one by one, and none of them is lost. Not even when the server is."
HALF_SECOND_BYTES = 24_000
VOICES = [{"voice": "linden", "do_sample": True, "temperature": 0.7}, {"voice": "wren"}]


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    folder = tmp_path_factory.mktemp("servers")
    running = [ServerProcess(folder / f"log{number}") for number in range(2)]
    yield running
    for server in running:
        server.strike(signal.SIGKILL)
        server.stop()


async def listen(
    client: SpeechClient,
    heard: list[bytes],
    lead_ms: int = 600,
    on_audio: Callable[[], None] = lambda: None,
    **config: object,
) -> int:
    """How often it was resumed."""
    resumed = 0
    async with client.speak(synthesis_config(seed=7, **config), max_lead_ms=lead_ms) as session:
        await session.send_text(TEXT)
        await session.finish()
        async for event in session:
            match event.payload:
                case AudioChunk() as audio:
                    heard.append(audio.data)
                    on_audio()
                case Resumed():
                    resumed += 1
                case UtteranceDone() as done:
                    assert done.reason == FINISH_REASON_COMPLETED
    return resumed


@pytest.mark.slow
@pytest.mark.rare
async def test_listeners_hear_the_end_of_a_sentence_whose_server_froze_or_was_killed(
    servers: list[ServerProcess],
) -> None:
    first, second = servers
    async with SpeechClient(second.address) as client:
        whole: list[list[bytes]] = [[] for _ in VOICES]
        for heard, config in zip(whole, VOICES, strict=True):
            assert await listen(client, heard, lead_ms=0, **config) == 0
    # gRPC goes through these in their order, and from one that is gone to the next.
    async with SpeechClient(f"ipv4:{first.address},{second.address}") as client:
        for struck, fault in ((first, signal.SIGSTOP), (second, signal.SIGKILL)):
            broken: list[list[bytes]] = [[] for _ in VOICES]
            async with asyncio.TaskGroup() as tasks:
                listeners = [
                    tasks.create_task(listen(client, heard, **config))
                    for heard, config in zip(broken, VOICES, strict=True)
                ]
                await eventually(lambda heard=broken: min(map(len, heard)) >= 8, True)
                struck.strike(fault)
            assert min(task.result() for task in listeners) >= 1  # more, if the other was only busy for a while
            for one, other in zip(broken, whole, strict=True):
                assert_same_audio(b"".join(one), b"".join(other))
            first.strike(signal.SIGCONT)


@pytest.mark.slow
async def test_a_listener_whose_connection_is_cut_again_and_again_hears_every_sample_once(
    server: ServerProcess,
) -> None:
    """Whenever another half second has come. `python -m tests.measure.cuts` does it for a minute."""
    voice = VOICES[0]
    async with SpeechClient(server.address) as client:
        whole: list[bytes] = []
        await listen(client, whole, lead_ms=0, **voice)
    async with CuttingProxy(server.port) as proxy, SpeechClient(f"127.0.0.1:{proxy.port}") as client:
        heard: list[bytes] = []
        cuts: list[int] = []  # bytes that had come before

        def cut() -> None:
            num_bytes = sum(map(len, heard))
            if num_bytes - (cuts[-1] if cuts else 0) >= HALF_SECOND_BYTES and proxy.cut():
                cuts.append(num_bytes)

        resumed = await listen(client, heard, on_audio=cut, **voice)
    assert 5 <= resumed <= len(cuts)
    assert_same_audio(b"".join(heard), b"".join(whole))


@pytest.mark.parametrize("gone", ["voice", "dictionary"])
async def test_what_was_deleted_before_a_resumption_ends_what_needs_it_and_nothing_else(
    tmp_path: Path, gone: str
) -> None:
    with ServerProcess(tmp_path / "log", "--voices-dir", str(tmp_path / "voices")) as server:
        async with SpeechClient(server.address) as client:
            await client.create_voice("duet", mix=voice_mix({"linden": 1, "wren": 1}))
            await client.put_dictionary("house", {"one": "won"})
            named: dict[str, Any] = {"voice": "duet"} if gone == "voice" else {"dictionaries": ["house"]}
            async with CuttingProxy(server.port) as proxy, SpeechClient(f"127.0.0.1:{proxy.port}") as cut:
                done, num_bytes = await speak_three(client, cut, proxy, gone, synthesis_config(seed=7, **named))
    for utterance_id in ("begun", "new"):
        assert done[utterance_id].reason == FINISH_REASON_FAILED
        assert done[utterance_id].error.code == code_pb2.NOT_FOUND
        assert "speak what was not heard as a new utterance" in done[utterance_id].error.message
    assert num_bytes["begun"] >= HALF_SECOND_BYTES, "what was heard stays"
    assert done["other"].reason == FINISH_REASON_COMPLETED
    assert num_bytes["other"] == 48 * done["other"].stats.sent_ms


async def speak_three(
    client: SpeechClient, cut: SpeechClient, proxy: CuttingProxy, gone: str, config: SynthesisConfig
) -> tuple[dict[str, UtteranceDone], Counter[str]]:
    """One that is lost in its middle, one that needs the same, and one that does not: their ends and bytes of audio."""
    done, num_bytes = dict[str, UtteranceDone](), Counter[str]()
    async with cut.speak(config, max_lead_ms=200) as session:
        await session.send_text(TEXT, "begun")
        await session.end("begun")
        async for event in session:
            match event.payload:
                case AudioChunk() as audio:
                    num_bytes[event.utterance_id] += len(audio.data)
                    if num_bytes["begun"] >= HALF_SECOND_BYTES and gone:
                        await (client.delete_voice("duet") if gone == "voice" else client.delete_dictionary("house"))
                        gone = ""
                        assert proxy.cut()
                case Resumed():
                    await session.send_text(TEXT, "new")
                    await session.send_text(TEXT, "other", utterance_config(synthesis_config(seed=7, voice="wren")))
                    await session.finish()
                case UtteranceDone() as over:
                    done[event.utterance_id] = over
    return done, num_bytes

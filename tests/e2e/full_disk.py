"""A server and a gateway whose voices, caches, logs and temporary files are on a disk that becomes full.

python -m tests.e2e.full_disk FOLDER, where FOLDER is a small file system of its own.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from sonorant.client import Clip, ServerUnavailable, SpeechClient, synthesis_config, voice_mix
from tests.e2e.server_process import ServerProcess, samples
from tests.full_disk import fill
from tests.gateway.gateway_process import GatewayProcess
from tests.service.harness import eventually

TEXT = "Good morning. The house is by the river."
NAMES = {f"name {number}": "said like this" for number in range(200)}
STORE_FAILED = "the stored voices cannot be read or written now"


def main(place: str) -> None:
    disk = Path(place)
    for name in ("cache", "tmp"):
        (disk / name).mkdir()
    os.environ |= {"XDG_CACHE_HOME": str(disk / "cache"), "TMPDIR": str(disk / "tmp")}
    voices = ("--voices-dir", str(disk / "voices"))
    with (
        ServerProcess(disk / "server.log", "--device", "cpu", *voices, environment=os.environ) as server,
        GatewayProcess(disk / "gateway.log", "--server", server.address, "--processes", "2") as gateway,
    ):
        asyncio.run(becomes_full(disk, server, gateway))
        codes = [gateway.stop(), server.stop()]
    assert codes == [0, 0], codes
    fill(disk / "stuffing")
    asyncio.run(starts_on_a_full_disk(disk, voices))
    print("survived")


async def becomes_full(disk: Path, server: ServerProcess, gateway: GatewayProcess) -> None:
    async with SpeechClient(server.address) as client, aiohttp.ClientSession(gateway.url) as http:
        await eventually(lambda: ready(http), 200)
        before = await spoken(client)
        await client.create_voice("kept", mix=voice_mix({"linden": 0.5, "wren": 0.5}))
        duet = await spoken(client, "kept")
        processes = server.child_ids().keys()
        fill(disk / "stuffing")
        for _ in range(3):
            await refused_for_want_of_room(client.create_voice("more", mix=voice_mix({"linden": 0.4, "wren": 0.6})))
            await refused_for_want_of_room(client.put_dictionary("names", NAMES))
            assert await spoken(client) == before, "who only speaks notices nothing"
            assert await spoken(client, "kept") == duet
        await many_answers(http)
        assert [sample for sample in samples(server.metrics_port) if sample.name == "tts_utterances_total"]
        await client.delete_voice("kept")
        assert server.child_ids().keys() == processes, "no process died"
        (disk / "stuffing").unlink()
        await client.create_voice("more", mix=voice_mix({"linden": 0.4, "wren": 0.6}))
        assert len(await spoken(client, "more")) > 0


async def starts_on_a_full_disk(disk: Path, voices: Sequence[str]) -> None:
    with (
        ServerProcess(disk / "server.log", "--device", "cpu", *voices, environment=os.environ) as server,
        GatewayProcess(disk / "gateway.log", "--server", server.address, "--processes", "2") as gateway,
    ):
        async with SpeechClient(server.address) as client, aiohttp.ClientSession(gateway.url) as http:
            await eventually(lambda: ready(http), 200)
            assert await spoken(client, "more")
            await many_answers(http)
        codes = [gateway.stop(), server.stop()]
    assert codes == [0, 0], codes


async def many_answers(http: aiohttp.ClientSession) -> None:
    """Speech, and refusals of many kinds, each of which is a new row of the gateway's metrics."""
    async with http.post("/v1/audio/speech", json={"input": TEXT, "response_format": "wav"}) as response:
        assert response.status == 200 and len(await response.read()) > 10_000
    bad: list[dict[str, Any]] = [{"input": ""}, {}, {"input": "a", "voice": "nobody"}, {"input": "a", "model": "none"}]
    for path in ("/v1/audio/speech", "/v1/audio/speech/batch", "/tts/bytes", "/tts/sse", "/v1/audio/dictionaries"):
        for body in bad:
            async with http.post(path, json=body) as response:
                assert 400 <= response.status < 500, (path, body, response.status)
    async with http.get("/metrics") as response:
        assert response.status == 200 and "gateway_refusals_total" in await response.text()


async def ready(http: aiohttp.ClientSession) -> int:
    async with http.get("/ready") as response:
        return response.status


async def spoken(client: SpeechClient, voice: str = "linden") -> bytes:
    clip: Clip = await client.synthesize(TEXT, synthesis_config(voice=voice, seed=7))
    return clip.audio


async def refused_for_want_of_room(call: Any) -> None:
    try:
        await call
    except ServerUnavailable as error:
        assert error.reason == "VOICE_STORE_FAILED" and STORE_FAILED in str(error), error
    else:
        raise AssertionError("there was room")


if __name__ == "__main__":
    main(*sys.argv[1:])

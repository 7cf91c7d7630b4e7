import asyncio
import base64
import random
import time
from urllib.parse import quote

import pytest

from sonorant.gateway.errors import Refusal
from sonorant.gateway.openai.data_uris import MAX_REF_AUDIO_BYTES, PIECE_CHARS, DecodedUris, recording_in
from tests.gateway.turns import slowness

HEAD = "data:audio/wav;base64,"
LARGEST = MAX_REF_AUDIO_BYTES // 3 * 3


@pytest.mark.parametrize("num_bytes", [1, 2, 3, 100, PIECE_CHARS * 3 // 4 - 1, PIECE_CHARS * 3 // 4, 100_000, 147_456])
async def test_base64_is_read_as_browsers_do(num_bytes: int) -> None:
    recording = random.Random(num_bytes).randbytes(num_bytes)
    text = base64.b64encode(recording).decode()
    lines = "\r\n".join(text[at : at + 76] for at in range(0, len(text), 76))
    for written in (text, text.rstrip("="), lines, quote(text, safe=""), f"  {quote(lines)} "):
        assert await recording_in(HEAD + written, "ref_audio") == recording
    for head in (
        "DATA:AUDIO/WAV;BASE64,",
        "data:;base64,",
        "data:audio/wav; base64,",
        "\n data:audio/wav;\r\n\tbase64,",
    ):
        assert await recording_in(head + text, "ref_audio") == recording


@pytest.mark.parametrize("wrong", ["***", "A", "QQ==QQ==", "A" * PIECE_CHARS + "*", "A" * PIECE_CHARS + "A", "%2", "é"])
async def test_what_is_no_base64_is_refused(wrong: str) -> None:
    with pytest.raises(Refusal, match="not base64"):
        await recording_in(HEAD + wrong, "ref_audio")


async def test_padding_between_two_pieces_is_refused() -> None:
    begin = "A" * (PIECE_CHARS - 4) + "QQ=="
    with pytest.raises(Refusal, match="not base64"):
        await recording_in(HEAD + begin + begin, "ref_audio")


async def test_others_have_their_turn_while_the_largest_is_decoded() -> None:
    turns, longest_s = 0, 0.0

    async def others() -> None:
        nonlocal turns, longest_s
        last_s = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now_s = time.thread_time()
            turns, longest_s, last_s = turns + 1, max(longest_s, now_s - last_s), now_s

    running = asyncio.create_task(others())
    text = base64.b64encode(bytes(LARGEST)).decode()
    assert len(await recording_in(HEAD + text, "ref_audio")) == LARGEST
    running.cancel()
    assert turns > 100
    assert longest_s / slowness() < 0.02  # of processor time; all of it at once takes more


async def test_items_with_the_same_recording_or_fault_have_it_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []

    async def counted(uri: str, where: str) -> bytes:
        decoded.append(uri)
        return await recording_in(uri, where)

    monkeypatch.setattr("sonorant.gateway.openai.data_uris.recording_in", counted)
    recordings = DecodedUris()
    good, bad, empty = "data:audio/wav;base64,YWJj", "data:audio/wav;base64,?", ""
    assert await asyncio.gather(*(recordings.read(good, "ref_audio") for _ in range(4))) == [b"abc"] * 4
    for _ in range(3):
        with pytest.raises(Refusal, match="not base64"):
            await recordings.read(bad, "ref_audio")
    for _ in range(2):
        with pytest.raises(Refusal, match="empty"):
            await recordings.read(empty, "ref_audio")
    assert decoded == [good, bad, empty, empty]

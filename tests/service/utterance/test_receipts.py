"""Receipts: text that was heard is free at any server of the deployment, and nothing that a client makes up is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.client.speaking.journal import Journal
from sonorant.service.access.receipt_key import ReceiptKeyError, read_key
from sonorant.service.audio.writer import AudioSpec
from sonorant.service.utterance.receipts import (
    LIFETIME_S,
    FreeText,
    Place,
    ProvenHeard,
    Receipts,
)
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import Served, end, say, served
from tests.service.keys import ADA, BOB, bearer, table

EVE = "key-of-eve"
TEXT = "Hello there, how are you? I am well, thank you very much. "
CODES = np.arange(80, dtype=np.int16).reshape(20, 4)
AUDIO = AudioSpec(
    encoding=audio_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=24_000, native_rate_hz=24_000, frame_duration_ms=80
)
PLACE = Place(segment=1, start_char=5, num_frames=15, num_frames_before=4, pause_ms=160)
ADAS = Receipts(b"k" * 32, "ada", clock=lambda: 1_000_000.0)
BEFORE = (CODES[:4], True)
HERE = (CODES, False)


def resume(receipt: audio_pb2.Receipt, text: str = "Hello the", samples: int = 48_000) -> speak_pb2.Resume:
    return speak_pb2.Resume(receipt=receipt, heard_text=text, received_samples=samples)


def test_what_is_sealed_is_proven_and_nothing_else() -> None:
    receipt = ADAS.issue("Hello the", 48_000, AUDIO, PLACE, CODES[:15])
    assert len(receipt.seal) <= 64
    segments = [BEFORE, HERE]
    assert ADAS.heard(resume(receipt), AUDIO, segments) == ProvenHeard("Hello the", PLACE)
    assert ADAS.heard(resume(receipt, samples=99_000), AUDIO, segments), "more may have come since"
    assert ADAS.heard(resume(receipt, samples=16_000), replace(AUDIO, sample_rate_hz=8000), segments)
    refused: list[tuple[Receipts, speak_pb2.Resume, AudioSpec, list[Any]]] = [
        (replace(ADAS, caller="bob"), resume(receipt), AUDIO, segments),
        (replace(ADAS, key=b"l" * 32), resume(receipt), AUDIO, segments),
        (replace(ADAS, clock=lambda: 1_000_000.0 + LIFETIME_S), resume(receipt), AUDIO, segments),
        (ADAS, resume(receipt, "Hello The"), AUDIO, segments),
        (ADAS, resume(receipt, "Hello ther"), AUDIO, segments),
        (ADAS, resume(receipt, samples=47_000), AUDIO, segments),
        (ADAS, resume(receipt), replace(AUDIO, sample_rate_hz=48_000), segments),
        (ADAS, resume(receipt), replace(AUDIO, speed=0.5), segments),
        (ADAS, resume(receipt), AUDIO, []),
        (ADAS, resume(receipt), AUDIO, [BEFORE]),
        (ADAS, resume(receipt), AUDIO, [(CODES[:4], False), HERE]),
        (ADAS, resume(receipt), AUDIO, [(CODES[:5], True), HERE]),
        (ADAS, resume(receipt), AUDIO, [BEFORE, (CODES[:14], False)]),
        (ADAS, resume(receipt), AUDIO, [BEFORE, (CODES[::-1], False)]),
        (ADAS, speak_pb2.Resume(heard_text="Hello the", received_samples=48_000), AUDIO, segments),
    ]
    for receipts, told, audio, codes in refused:
        assert receipts.heard(told, audio, codes) is None, (told, audio, codes)


@given(st.integers(0, 43), st.integers(1, 255))
def test_no_bit_of_a_seal_can_be_changed(position: int, change: int) -> None:
    receipt = ADAS.issue("Hello the", 48_000, AUDIO, PLACE, CODES[:15])
    seal = bytearray(receipt.seal)
    seal[position] ^= change
    forged = audio_pb2.Receipt(chars=receipt.chars, seal=bytes(seal))
    assert ADAS.heard(resume(forged, samples=2**40), AUDIO, [BEFORE, HERE]) is None


@given(st.text(max_size=20), st.lists(st.text(max_size=8), max_size=6))
def test_only_the_same_beginning_is_free(paid: str, pieces: list[str]) -> None:
    free = FreeText(ProvenHeard(paid, Place()))
    text = "".join(pieces)
    same = next((n for n, (a, b) in enumerate(zip(paid, text, strict=False)) if a != b), min(len(paid), len(text)))
    assert sum(map(free.take, pieces)) == same


def test_text_that_is_divided_otherwise_is_charged_after_all() -> None:
    heard = ProvenHeard("Hello the", PLACE)
    for segments, due in (
        ([(1, 5, 160), (2, 9, 0)], 0),
        ([(1, 5, 160), (2, 7, 0)], 9),
        ([(1, 4, 160)], 9),
        ([(1, 5, 500)], 9),
        ([(1, 5, 0)], 9),
        ([(1, 4, 160), (2, 7, 0)], 9),  # once
    ):
        free = FreeText(heard)
        assert free.take("Hello there") == 9
        assert sum(free.begin_segment(*segment) for segment in segments) == due, segments


def test_a_longer_pause_before_the_place_is_charged_though_the_place_never_comes() -> None:
    """Of known frames, only what was received with all pauses before them is not made again."""
    for pauses, due in (((100, 60), 0), ((0, 0), 0), ((200,), 1), ((100, 100), 1)):
        free = FreeText(ProvenHeard("Hello the", PLACE._replace(segment=3, start_char=8, pause_ms=160)))
        assert free.take("H") == 1
        assert sum(free.begin_segment(n, 1, pause_ms) for n, pause_ms in enumerate(pauses, 1)) == due, pauses
        assert free.take("ello the") == (8 if not due else 0)


def test_a_key_comes_from_a_file_or_is_made(tmp_path: Path) -> None:
    assert len(read_key(None)) == 32 and read_key(None) != read_key(None)
    (tmp_path / "key").write_text("s" * 44 + "\n")
    assert read_key(tmp_path / "key") == b"s" * 44
    (tmp_path / "short").write_text("secret")
    for path, said in ((tmp_path / "short", "at least 32"), (tmp_path / "missing", "cannot read")):
        with pytest.raises(ReceiptKeyError, match=said):
            read_key(path)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    """Of a deployment: ada may send the text once per minute, bob far more, and eve as much as she likes."""
    keys, secret = tmp_path / "keys.toml", tmp_path / "secret"
    limits = {"ada": len(TEXT), "bob": 10**6}
    tables = [table(name, f"key-of-{name}", f"max_text_chars_per_minute = {most}") for name, most in limits.items()]
    keys.write_text("".join(tables) + table("eve", EVE))
    secret.write_text("s" * 44)
    return {"api_keys": keys, "receipt_key_file": secret}


async def speak(server: Served, key: str, requests: list[Any], journal: Journal, num_responses: int | None) -> bytes:
    """Return the audio of the first responses."""
    call = server.stub.Speak(metadata=bearer(key))
    audio, count = b"", 0
    for request in requests:
        await call.write(request)
    if num_responses is None:
        await call.done_writing()
    async for response in call:
        journal.take(response)
        audio += response.audio.data
        count += 1
        if count == num_responses or response.HasField("done"):
            break
    if not response.done.HasField("error"):
        call.cancel()
        return audio
    raise AssertionError(response.done.error.message)


def config(**more: Any) -> speak_pb2.SpeakRequest:
    synthesis = synthesis_pb2.SynthesisConfig(sampling={"seed": 7})
    return speak_pb2.SpeakRequest(config=speak_pb2.SpeakConfig(synthesis=synthesis, max_lead_ms=0, resumable=True))


async def broken(server: Served, key: str, num_responses: int = 12) -> tuple[Journal, bytes]:
    """A session that is lost in the middle of its text."""
    journal = Journal()
    requests = [config(), journal.text("", TEXT), journal.end("")]
    return journal, await speak(server, key, requests, journal, num_responses)


async def test_a_session_goes_on_at_another_server_without_being_charged_again(files: dict[str, Any]) -> None:
    async with served(FakeEngine(), **files) as here, served(FakeEngine(), **files) as there:
        journal, heard = await broken(here, ADA)
        (resumed, *_) = again = list(journal.requests_to_resend())
        proven = resumed.resume.receipt.chars
        assert 0 < proven == len(resumed.resume.heard_text) and TEXT.startswith(resumed.resume.heard_text)
        # There as much of this minute's text is spent as may be, if what was heard is free.
        spent = Journal()
        await speak(there, ADA, [config(), spent.text("", TEXT[:proven]), spent.end("")], spent, None)
        rest = await speak(there, ADA, [config(), *again], journal, None)
        assert heard + rest == spoken(TEXT, 7)


async def test_without_a_valid_receipt_what_was_heard_is_charged(files: dict[str, Any], tmp_path: Path) -> None:
    """A made-up claim, another key of receipts, a receipt of somebody else, a client that knows of none."""
    other = tmp_path / "other"
    other.write_text("o" * 44)
    async with (
        served(FakeEngine(), **files) as here,
        served(FakeEngine(), **files) as there,
        served(FakeEngine(), **files | {"receipt_key_file": other}) as elsewhere,
    ):
        journal, _ = await broken(here, ADA)
        adas = list(journal.requests_to_resend())
        of_bob, _ = await broken(here, BOB)
        bobs = list(of_bob.requests_to_resend())
        bare = [type(each).FromString(each.SerializeToString()) for each in adas]
        bare[0].resume.ClearField("receipt")
        for number, (server, requests) in enumerate(((elsewhere, adas), (there, bobs), (there, bare))):
            if server is elsewhere or number == 1:
                spent = Journal()
                await speak(server, ADA, [config(), spent.text("", TEXT[:20]), spent.end("")], spent, None)
            with pytest.raises(AssertionError, match="characters of text per minute"):
                await speak(server, ADA, [config(), *requests], Journal(), None)
        of_eve, _ = await broken(here, EVE)
        eves = list(of_eve.requests_to_resend())
        assert not eves[0].resume.HasField("receipt"), "a caller without a limit needs none"
        assert await speak(there, EVE, [config(), *eves], of_eve, None)


async def test_a_forged_claim_makes_no_text_free(files: dict[str, Any]) -> None:
    """Ten minutes are said to be heard, and frames are made up for them: each text is charged all the same."""
    async with served(FakeEngine(), **files) as server:
        codes = bytes(8 * 200)
        forged = speak_pb2.Resume(
            checkpoint="0123456789abcdef",
            replay=synthesis_pb2.SynthesisConfig(sampling={"seed": 7}),
            received_samples=24_000 * 600,
            segments=[audio_pb2.SegmentCodes(segment=0, codes=codes, complete=True)],
            receipt=audio_pb2.Receipt(chars=40, seal=b"x" * 44),
            heard_text=TEXT[:40],
        )
        first = speak_pb2.SpeakRequest(utterance_id="a", resume=forged)
        await speak(server, ADA, [config(), first, say(TEXT, "a"), end("a")], Journal(), None)
        again = speak_pb2.SpeakRequest(utterance_id="b", resume=forged)
        with pytest.raises(AssertionError, match="characters of text per minute"):
            await speak(server, ADA, [config(), again, say(TEXT, "b"), end("b")], Journal(), None)


async def test_limits_of_text_and_audio_hold_within_a_resume(files: dict[str, Any]) -> None:
    async with served(FakeEngine(), **files) as server:
        journal, _ = await broken(server, BOB)
        (resumed, *rest) = journal.requests_to_resend()
        long = [type(each).FromString(each.SerializeToString()) for each in (resumed, *rest)]
        long[1].text = TEXT + "x" * 100_000
        with pytest.raises(AssertionError, match="100000"):
            await speak(server, BOB, [config(), *long], Journal(), None)
        resumed.resume.replay.sampling.max_frames = 40
        with pytest.raises(AssertionError, match="not up to 40 frames"):
            await speak(server, BOB, [config(), resumed, *rest], Journal(), None)

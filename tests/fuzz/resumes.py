"""Resumes with receipts, made of a real session and then changed: no audio comes that nobody has paid for."""

import random
from pathlib import Path
from unittest.mock import patch

import grpc

from sonorant.client.speaking.journal import Journal
from sonorant.service.access.api_keys import Caller
from sonorant.service.admission.limits import Limits
from sonorant.tts.v1 import audio_pb2, speak_pb2
from tests.fuzz.bytes import mutated
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import FRAME_SAMPLES, FRAMES_PER_CHAR, NUM_CODEBOOKS
from tests.service.harness import Served, served
from tests.service.keys import ADA, bearer, table

FORGERIES = 10
TEXT = "Hello there. How are you today? And so on, and on. "
CHAR_SAMPLES = FRAMES_PER_CHAR * FRAME_SAMPLES
FRAME_BYTES = 2 * NUM_CODEBOOKS
SENTENCES = {"mode": speak_pb2.COMMIT_MODE_SENTENCE}


async def forge_resumes(folder: Path, rng: random.Random) -> int:
    """At a server that limits the caller's text. Returns how many messages went out."""
    keys = folder / "keys-of-resumes.toml"
    keys.write_text(table("ada", ADA, "max_text_chars_per_minute = 100000000"))
    engine = FakeEngine()
    engine.checks_codes = False  # forged ones are spoken behind, as the model would
    async with served(engine, api_keys=keys) as server:
        return sum([await _forge(server, rng) for _ in range(FORGERIES)])


async def _forge(server: Served, rng: random.Random) -> int:
    """Break a session off, and continue it in a changed way."""
    policy = rng.choice((None, SENTENCES))
    config = speak_pb2.SpeakConfig(
        synthesis={"sampling": {"seed": 7}}, text_policy=policy, max_lead_ms=0, resumable=True
    )
    journal = Journal()
    requests = [journal.text("", TEXT)]
    if rng.random() < 0.5:
        requests += [
            journal.flush("", speak_pb2.Flush(flush_id=1, pause_ms=rng.choice((0, 160)))),
            journal.text("", TEXT),
        ]
    requests.append(journal.end(""))
    sent = [speak_pb2.SpeakRequest(config=config), *filter(None, requests)]
    heard_samples, receipts = await _converse(server, sent, journal, rng.randrange(4, 60))
    proven_chars = receipts[-1].chars if receipts else 0
    again = list(journal.requests_to_resend())
    if not again or not again[0].HasField("resume"):
        return len(sent)
    if rng.random() < 0.8:
        for _ in range(rng.randint(1, 3)):
            again = _changed(again, rng)
        if rng.random() < 0.3:
            config.text_policy.CopyFrom(speak_pb2.TextPolicy(**rng.choice(({}, SENTENCES))))
    charged = 0
    take = Limits.take

    def counted(limits: Limits, caller: Caller, num_chars: int) -> None:
        nonlocal charged
        charged += num_chars
        take(limits, caller, num_chars)

    with patch.object(Limits, "take", counted):
        samples, _ = await _converse(server, [speak_pb2.SpeakRequest(config=config), *again], Journal(), 10**6)
    resumed = again[0].resume.replay
    per_sample = 24_000 / (resumed.audio.sample_rate_hz or 24_000)
    samples = samples * per_sample * (resumed.speed or 1)
    # Where the text is by the server's estimate, which may be ahead of the audio that the client says it has.
    had_samples = min(heard_samples, again[0].resume.received_samples * per_sample)
    ahead = max(0.0, proven_chars - had_samples / CHAR_SAMPLES)
    assert samples / CHAR_SAMPLES <= charged + ahead + 1, (
        f"{samples / CHAR_SAMPLES:.1f} characters were spoken, {charged} charged, {ahead:.1f} ahead: {again}"
    )
    return len(sent) + len(again)


async def _converse(
    server: Served, requests: list[speak_pb2.SpeakRequest], journal: Journal, num_responses: int
) -> tuple[int, list[audio_pb2.Receipt]]:
    """Return how many samples of speech came in the first responses, and all receipts."""
    call = server.stub.Speak(metadata=bearer(ADA))
    samples, receipts = 0, []
    try:
        for request in requests:
            await call.write(request)
        await call.done_writing()
        for _ in range(num_responses):
            if (response := await call.read()) is grpc.aio.EOF:
                break
            journal.take(response)
            data = response.audio.data
            samples += sum(data[at : at + 2] != b"\0\0" for at in range(2, len(data), 14)) * 7  # pauses are zeros
            if response.audio.HasField("receipt"):
                receipts.append(response.audio.receipt)
    except (grpc.aio.AioRpcError, grpc.aio.UsageError) as error:
        assert getattr(error, "code", lambda: None)() not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN), error
    finally:
        call.cancel()
    return samples, receipts


def _changed(requests: list[speak_pb2.SpeakRequest], rng: random.Random) -> list[speak_pb2.SpeakRequest]:
    """Change what a client that wants free speech would change."""
    requests = [type(request).FromString(request.SerializeToString()) for request in requests]
    resume = requests[0].resume
    texts = [request for request in requests if request.HasField("text")]
    match rng.randrange(12):
        case 0:
            resume.received_samples = rng.choice((0, resume.received_samples // 2, 10**7))
        case 1:
            resume.receipt.chars = rng.choice((0, resume.receipt.chars + 9, 1000))
        case 2:
            resume.receipt.seal = mutated(resume.receipt.seal, rng)
        case 3:
            resume.heard_text = rng.choice(("", resume.heard_text[:5], TEXT * 2, resume.heard_text.upper()))
        case 4:
            del resume.segments[rng.randrange(len(resume.segments) + 1) :]
        case 5 if resume.segments:
            changed = rng.choice(resume.segments)
            num_frames = rng.choice((0, 1, 10, len(changed.codes) // FRAME_BYTES // 2, 200))
            changed.codes = (changed.codes * 200)[: num_frames * FRAME_BYTES]
        case 6 if resume.segments:
            changed = rng.choice(resume.segments)
            changed.complete = not changed.complete
        case 7 if texts:
            rng.choice(texts).text = rng.choice((TEXT.upper(), "New words that nobody has paid for. ", TEXT + TEXT))
        case 8 if texts:
            at = requests.index(rng.choice(texts))
            text, cut = requests[at].text, rng.randrange(1, 20)
            flush = speak_pb2.SpeakRequest(
                utterance_id=requests[at].utterance_id, flush={"pause_ms": rng.choice((0, 2000))}
            )
            parts = [
                speak_pb2.SpeakRequest(utterance_id=flush.utterance_id, text=each) for each in (text[:cut], text[cut:])
            ]
            requests[at : at + 1] = [parts[0], flush, parts[1]]
        case 9:
            resume.replay.speed = rng.choice((0.5, 2.0))
        case 10:
            resume.replay.audio.sample_rate_hz = rng.choice((8000, 48_000))
        case _:
            resume.segments.add(segment=len(resume.segments), codes=bytes(FRAME_BYTES * 20), complete=True)
    return requests

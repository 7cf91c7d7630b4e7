"""The three loads, through real gRPC, on a server whose engine makes frames at a known pace."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from sonorant.bench.grpc_speech import grpc_speaker
from sonorant.bench.loads import Load, LoadKind, Protocol, Share, SpokenLoad, Target
from sonorant.bench.measure import Measured, measure
from sonorant.bench.reporting.statistics import Row, row
from tests.cutting_proxy import CuttingProxy
from tests.service.fake_engine import FakeEngine
from tests.service.harness import served

FRAMES = 12
AUDIO_S = FRAMES * 0.08
TEXTS = tuple(f"text number {n} of the load" for n in range(7))  # two frames per character, so long enough


async def run(
    engine: FakeEngine,
    kind: LoadKind,
    amount: float,
    *,
    shares: int = 1,
    protocol: Protocol = "speak",
    seconds: float = 1.0,
    warm_up_s: float = 0.3,
    max_sessions: int = 100,
    timeout_s: float = 10.0,
    max_in_flight: int = 100,
    **speech: float,
) -> tuple[Row, list[Measured]]:
    """What client processes would do, in this one."""
    async with served(engine, max_sessions=max_sessions) as server:
        target = Target(protocol, server.address)
        load = Load(kind, amount, seconds, warm_up_s)
        asked = SpokenLoad(TEXTS, seed=5, num_frames=FRAMES, **speech)  # type: ignore[arg-type]
        start_s = time.monotonic() + 0.1

        async def one(index: int) -> Measured:
            async with grpc_speaker(target, asked) as speaker:
                share = Share(target, load, asked, timeout_s, max_in_flight, index, shares)
                return await measure(share, speaker, start_s)

        parts = await asyncio.gather(*map(one, range(shares)))
        return row(str(target), load, 0, parts, 1000.0), parts


def counted(parts: Sequence[Measured]) -> int:
    return sum(outcome.counted for part in parts for outcome in part.outcomes)


@pytest.mark.parametrize("protocol", ["speak", "synthesize-stream"])
async def test_a_closed_loop_keeps_its_number_of_speakers_busy(protocol: Protocol) -> None:
    """20 ms of work per frame: an utterance takes 0.24 s, so 3 speakers say 12.5 a second; a busy machine, fewer."""
    measured, parts = await run(FakeEngine(frame_s=0.02), "closed", 3, shares=2, protocol=protocol)
    assert measured["failed"] == 0 and measured["peak_in_flight"] == 3
    assert 2 <= measured["ok"] <= 15
    assert measured["mean_audio_s"] == pytest.approx(AUDIO_S)
    assert 0.14 < measured["rtf_p50"] < 2
    assert 3 / 2.4 < measured["audio_s_per_s"] < 3 / 0.2
    assert len(parts) == 2 and all(part.lags_s for part in parts)
    assert any(not outcome.counted for part in parts for outcome in part.outcomes), "the warm-up is no result"


@pytest.mark.slow
async def test_an_open_loop_begins_as_planned_even_if_the_server_is_slow() -> None:
    measured, parts = await run(FakeEngine(frame_s=0.05), "open", 20, shares=2, seconds=1.5)
    assert measured["failed"] == 0
    assert 15 <= measured["ok"] <= 50 and measured["ok"] == counted(parts)
    assert measured["peak_in_flight"] > 5, "nobody waits for the one before"
    planned = sorted(o.planned_s for part in parts for o in part.outcomes if o.counted)
    assert len(set(planned)) == len(planned), "each arrival is of one process"
    assert planned[-1] - planned[0] < 1.5
    assert measured["planned_ttfa_ms_p50"] > measured["ttfa_ms_p50"]


async def test_a_paced_load_is_heard_without_a_pause() -> None:
    """Utterances of 0.96 s for 2.3 s: each listener hears several, as one sound."""
    measured, _ = await run(FakeEngine(frame_s=0.01), "paced", 5, shares=2, seconds=2.0, max_lead_ms=400)
    assert measured["failed"] == 0 and measured["ok"] == 5
    assert measured["c200"] == 1
    assert measured["audio_s_per_s"] == pytest.approx(5, rel=0.15)
    assert measured["mean_audio_s"] < 2.3 + 0.4 + 0.1, "no further ahead than the lead"
    assert measured["peak_in_flight"] == 5


async def test_a_server_slower_than_speech_makes_its_listeners_wait() -> None:
    measured, _ = await run(FakeEngine(frame_s=0.1), "paced", 2, seconds=2.0)
    assert measured["underruns"] == 1
    assert measured["audio_s_per_s"] == pytest.approx(2 * 0.08 / 0.1, rel=0.25)


async def test_a_server_that_stops_in_the_middle_of_speech_has_a_gap() -> None:
    engine = FakeEngine(frame_s=0.01)
    asyncio.get_running_loop().call_later(1.0, engine.hold)
    measured, _ = await run(engine, "paced", 2, seconds=3.0, max_lead_ms=200)
    assert measured["underruns"] == 1 and measured["gap_ms_max"] > 500 and measured["c200"] == 0


async def test_failures_are_counted_by_status() -> None:
    measured, _ = await run(FakeEngine(frame_s=0.02), "open", 40, max_sessions=2)
    assert measured["ok"] > 0 and measured["failures"]["RESOURCE_EXHAUSTED"] > 0
    assert any("try again" in message for message in measured["messages"])


async def test_utterances_that_may_wait_are_not_refused() -> None:
    engine = FakeEngine(frame_s=0.01, max_streams=2)
    measured, _ = await run(engine, "closed", 4, max_wait_ms=10_000, batch=True)
    assert measured["ok"] > 4 and measured["failed"] == 0 and all(engine.background)


async def test_an_utterance_that_takes_too_long_is_given_up() -> None:
    engine = FakeEngine()
    engine.hold()
    measured, _ = await run(engine, "closed", 2, seconds=0.5, timeout_s=0.3)
    assert measured["ok"] == 0 and set(measured["failures"]) == {"TIMEOUT"}


async def test_an_open_loop_has_a_limit_of_its_own() -> None:
    measured, _ = await run(FakeEngine(frame_s=0.05), "open", 40, max_in_flight=3)
    assert measured["failures"]["CLIENT_LIMIT"] > 0 and measured["peak_in_flight"] <= 4


async def test_words_are_sent_one_by_one() -> None:
    """Six words at 20 per second: the audio of the last cannot come before 0.25 s."""
    measured, _ = await run(FakeEngine(), "closed", 1, words_per_s=20.0)
    assert measured["failed"] == 0 and measured["mean_audio_s"] == pytest.approx(AUDIO_S)
    assert measured["ttfa_ms_p50"] < 150
    whole, _ = await run(FakeEngine(), "closed", 1)
    assert measured["end_to_end_ms_p50"] > whole["end_to_end_ms_p50"]


async def test_an_utterance_whose_words_cannot_be_sent_fails() -> None:
    measured, _ = await run(FakeEngine(frame_s=0.05), "open", 20, words_per_s=20.0, max_sessions=1)
    assert measured["ok"] > 0 and measured["failures"]["RESOURCE_EXHAUSTED"] > 0
    # A call that ends while a message of it is written is lost: grpc.aio forgets what the server said of it.
    assert set(measured["failures"]) <= {"RESOURCE_EXHAUSTED", "UNAVAILABLE"}


async def test_utterances_take_turns_on_the_connections_of_a_client_process() -> None:
    async with served(FakeEngine()) as server, CuttingProxy(int(server.address.rpartition(":")[2])) as proxy:
        target = Target("speak", f"127.0.0.1:{proxy.port}", num_connections=3)
        load = Load("closed", 3, 0.3, 0.1)
        asked = SpokenLoad(TEXTS, seed=5, num_frames=FRAMES)
        async with grpc_speaker(target, asked) as speaker:
            measured = await measure(Share(target, load, asked, 10.0, 100, 0, 1), speaker, time.monotonic())
            assert proxy.num_connections == 3
        assert {outcome.status for outcome in measured.outcomes if outcome.counted} == {"OK"}

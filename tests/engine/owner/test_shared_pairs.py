"""Two server processes use the same workers: both speak alike, share the places, and outlive workers and each other.

Here both are in one process, with a pool each; tests/e2e has them in processes of their own.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from sonorant.engine import (
    BUILTIN_VOICE_DIR,
    Engine,
    EngineConfig,
    EngineError,
    EngineOverloaded,
    EnginePool,
    EngineState,
    EngineStream,
    FinishReason,
    PcmChunk,
    SharedPairs,
    SynthesisParams,
    shared_pairs,
    start_here,
)
from sonorant.engine.ipc.server_ids import server_of
from sonorant.engine.owner.board import BoardWord
from sonorant.engine.workers import worker_pair
from tests.engine.speech import Heard, listen

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONFIG = EngineConfig.of(
    model=BUILTIN_VOICE_DIR,
    num_slots=4,
    max_queued_streams=2,
    stored_streams=2,
    max_context=512,
    cpu_threads=1,
    hang_timeout_s=10,
)
TEXT = "One, two, three, and four of them."


def params(pool: EnginePool, seed: int, num_frames: int = 40) -> SynthesisParams:
    sampling = replace(pool.info.default_sampling, seed=seed, do_sample=True, ignore_eos=True, max_frames=num_frames)
    return SynthesisParams(sampling, speaker=pool.info.speakers[0])


def begun(pool: EnginePool, seed: int, num_frames: int = 40, text: str = TEXT) -> EngineStream:
    stream = pool.open(params(pool, seed, num_frames))
    stream.push_text(text)
    stream.end_text()
    return stream


async def said(pool: EnginePool, seed: int) -> Heard:
    return await listen(begun(pool, seed), pool.info.frame_samples)


def assert_same(heard: Heard, expected: Heard) -> None:
    assert heard.end.reason is expected.end.reason is FinishReason.MAX_FRAMES
    codes, others = (np.concatenate([chunk.codes for chunk in each.chunks]) for each in (heard, expected))
    np.testing.assert_array_equal(codes, others)
    assert np.abs(heard.samples.astype(np.int32) - expected.samples).max() <= 2


@dataclass
class Servers:
    owner: SharedPairs
    pools: list[EnginePool]

    @property
    def engines(self) -> list[Engine]:
        return [pool._pairs[0] for pool in self.pools]

    @property
    def worker_pids(self) -> list[int]:
        workers = self.owner._pairs[0].workers
        return [child.pid for child in workers.children] if workers else []

    def board(self, server: int) -> list[int]:
        return [self.owner._board.taken[0, server, word] for word in BoardWord]

    async def join(self, server: int) -> EnginePool:
        pool = await EnginePool.join(self.owner.configs, self.owner.connect(server), lambda state: None)
        await until(lambda: pool.state is EngineState.READY)
        return pool

    async def die(self, server: int) -> None:
        """What the owner sees and does when a server process is killed: it ends without a word, and is replaced."""
        engine, loop = self.engines[server], asyncio.get_running_loop()
        engine._traffic._endpoint = None
        if (endpoint := engine._endpoint) is not None:
            for end in (endpoint.inbox, endpoint.outbox):
                loop.remove_reader(end.fileno())
            endpoint.close()
        engine._link._packets.close()
        for rehearsal in self.pools[server]._rehearsals.values():
            rehearsal.cancel()
        self.owner.leave(server)
        await self.owner.clear(server)
        assert self.board(server) == [0, 0, 0, 0]
        self.pools[server] = await self.join(server)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def two_servers(*configs: EngineConfig) -> AsyncIterator[Servers]:
    async with shared_pairs(configs, 2, "false") as owner:
        servers = Servers(owner, [])
        _, *servers.pools = await asyncio.gather(owner.start(), servers.join(0), servers.join(1))
        try:
            yield servers
        finally:
            for number, pool in enumerate(servers.pools):
                await pool.close()
                owner.leave(number)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers() -> AsyncIterator[Servers]:
    """Their workers may fail as often as the tests want."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_pair, "RESTART_DELAYS_S", (0.0,) * 100)
        async with two_servers(CONFIG) as both:
            yield both


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expected() -> list[Heard]:
    """What a process with workers of its own says."""
    pool = await start_here([CONFIG])
    try:
        await until(lambda: pool.state is EngineState.READY)
        return [await said(pool, seed) for seed in range(4)]
    finally:
        await pool.close()


@pytest_asyncio.fixture(autouse=True, loop_scope="module")  # in the loop of the servers, which have to run meanwhile
async def all_is_given_back(servers: Servers) -> AsyncIterator[None]:
    """Also what the warm-up took, before the first test."""

    async def given_back() -> None:
        await until(lambda: all(servers.board(number) == [0, 0, 0, 0] for number in range(2)))

    await given_back()
    yield
    await given_back()


async def test_both_speak_at_once_as_one_alone_does(servers: Servers, expected: list[Heard]) -> None:
    heard = await asyncio.gather(*(said(servers.pools[seed % 2], seed) for seed in range(4)))
    for one, other in zip(heard, expected, strict=True):
        assert_same(one, other)


async def test_stored_codes_are_decoded_for_both(servers: Servers, expected: list[Heard]) -> None:
    codes = np.concatenate([chunk.codes for chunk in expected[0].chunks])
    streams = [pool.open_stored(pool.info.codec, [codes]) for pool in servers.pools]
    with pytest.raises(EngineOverloaded, match="all 2 places for stored codes"):
        servers.pools[0].open_stored(servers.pools[0].info.codec, [codes])
    for stream in streams:
        heard = await listen(stream, servers.pools[0].info.frame_samples)  # type: ignore[arg-type]
        assert np.abs(heard.samples.astype(np.int32) - expected[0].samples).max() <= 2


async def test_places_are_shared(servers: Servers) -> None:
    one, other = servers.pools
    streams = [one.open(params(one, n)) for n in range(5)]
    streams.append(other.open(params(other, 5)))
    for pool in servers.pools:
        assert pool._pairs[0].num_places == 6
        with pytest.raises(EngineOverloaded, match="all 6 streams"):
            pool.open(params(pool, 6))
    streams.pop(0).cancel()
    streams.append(other.open(params(other, 6)))
    assert [server_of(stream.stream_id) for stream in streams] == [0] * 4 + [1] * 2
    for stream in streams:
        stream.cancel()


async def test_places_kept_by_one_are_not_taken_by_the_other(servers: Servers) -> None:
    one, other = servers.pools
    one.keep_places(one.info.fingerprint, 4)
    streams = [other.open(params(other, n)) for n in range(2)]
    with pytest.raises(EngineOverloaded):
        other.open(params(other, 2))
    streams.append(one.open(params(one, 3)))  # it knows what it keeps
    one.keep_places(one.info.fingerprint, -4)
    for stream in streams:
        stream.cancel()


async def test_one_that_dies_takes_nobody_along_and_its_places_come_back(
    servers: Servers, expected: list[Heard]
) -> None:
    doomed = [begun(servers.pools[0], seed, num_frames=400) for seed in range(3)]
    codes = np.concatenate([chunk.codes for chunk in expected[0].chunks])
    servers.pools[0].open_stored(servers.pools[0].info.codec, [codes], credit_frames=2)
    living = asyncio.gather(*(said(servers.pools[1], seed) for seed in (2, 3)))
    for stream in doomed:
        assert isinstance(await stream.next_event(), PcmChunk)
    pids = servers.worker_pids
    await servers.die(0)
    for one, other in zip(await living, expected[2:], strict=True):
        assert_same(one, other)
    assert servers.worker_pids == pids
    assert_same(await said(servers.pools[0], 0), expected[0])


@pytest.mark.rare
@pytest.mark.slow
async def test_one_may_die_again_and_again(servers: Servers, expected: list[Heard]) -> None:
    """No id comes again, and the rings are taken over wherever they stand."""
    stream_ids = set()
    for _ in range(4):
        stream = begun(servers.pools[1], 0, num_frames=400)
        stream_ids.add(stream.stream_id)
        assert isinstance(await stream.next_event(), PcmChunk)
        await servers.die(1)
        assert_same(await said(servers.pools[1], 1), expected[1])
    assert len(stream_ids) == 4


@pytest.mark.parametrize("worker", [0, 1])
async def test_streams_of_both_outlive_workers(servers: Servers, expected: list[Heard], worker: int) -> None:
    streams = [begun(servers.pools[seed % 2], seed) for seed in range(4)]
    first = [await stream.next_event() for stream in streams]
    os.kill(servers.worker_pids[worker], signal.SIGKILL)
    for stream, chunk, whole in zip(streams, first, expected, strict=True):
        assert isinstance(chunk, PcmChunk)
        stream.grant(chunk.num_frames)
        rest = await listen(stream, servers.pools[0].info.frame_samples, next_frame=chunk.num_frames)
        assert_same(Heard(rest.end, [chunk, *rest.chunks]), whole)
    for pool in servers.pools:
        await until(lambda pool=pool: pool.state is EngineState.READY)


@pytest.mark.slow
async def test_a_server_that_dies_while_workers_are_replaced_comes_back(
    servers: Servers, expected: list[Heard]
) -> None:
    stream = begun(servers.pools[1], 1)
    os.kill(servers.worker_pids[0], signal.SIGKILL)
    await until(lambda: servers.owner._pairs[0].state is EngineState.RESTARTING)
    await servers.die(0)
    assert_same(await listen(stream, servers.pools[1].info.frame_samples), expected[1])
    assert_same(await said(servers.pools[0], 0), expected[0])


@pytest.mark.slow
async def test_a_stream_that_kills_workers_ends_alone_whichever_server_it_is_of(
    expected: list[Heard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kills them as soon as it runs. Streams of both that were heard are cleared before it is tried.

    One failure in a row is the most: the second one, which is the stream's, does not count.
    """
    monkeypatch.setattr(worker_pair, "RESTART_DELAYS_S", (0.0,))
    async with two_servers(CONFIG) as servers:
        living = [begun(servers.pools[seed % 2], seed) for seed in (2, 3)]
        first = [await stream.next_event() for stream in living]
        poison = begun(servers.pools[1], 9, num_frames=400)
        begin, killed = poison.begin, list[int]()

        def kill() -> None:
            killed.append(servers.worker_pids[0])
            os.kill(killed[-1], signal.SIGKILL)

        def begin_and_kill(run_id: int, now_s: float, send: Any) -> None:
            begin(run_id, now_s, send)
            kill()  # at once: a few milliseconds later it might have been heard, and so be cleared

        monkeypatch.setattr(poison, "begin", begin_and_kill)
        assert poison.run_id
        kill()
        await until(lambda: poison.ended)
        assert len(killed) == 2
        events = poison.ready_events()
        assert isinstance(events[-1], type(expected[0].end)) and events[-1].reason is FinishReason.FAILED
        assert "twice at this utterance" in events[-1].detail
        for stream, chunk, whole in zip(living, first, expected[2:], strict=True):
            assert isinstance(chunk, PcmChunk)
            stream.grant(chunk.num_frames)
            rest = await listen(stream, servers.pools[0].info.frame_samples, next_frame=chunk.num_frames)
            assert_same(Heard(rest.end, [chunk, *rest.chunks]), whole)


@pytest.mark.slow
async def test_a_server_that_does_not_answer_holds_the_others_up_for_a_while_only(
    servers: Servers, expected: list[Heard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own streams go on when it answers at last."""
    monkeypatch.setattr(worker_pair, "JUDGE_TIMEOUT_S", 0.2)
    judge: Any = servers.engines[0].placement.verdicts
    packets, unsent = judge._packets, list[object]()
    monkeypatch.setattr(judge, "_packets", SimpleNamespace(send=unsent.append))
    streams = [begun(servers.pools[seed], seed) for seed in range(2)]
    first = [await stream.next_event() for stream in streams]
    os.kill(servers.worker_pids[0], signal.SIGKILL)
    for number in (1, 0):
        chunk = first[number]
        assert isinstance(chunk, PcmChunk)
        streams[number].grant(chunk.num_frames)
        rest = await listen(streams[number], servers.pools[0].info.frame_samples, next_frame=chunk.num_frames)
        assert_same(Heard(rest.end, [chunk, *rest.chunks]), expected[number])
        if number == 1:
            assert not streams[0].run_id and not streams[0].ended
            monkeypatch.setattr(judge, "_packets", packets)
            for message in unsent:
                packets.send(message)


async def test_a_stream_waits_for_room_that_the_other_server_has(servers: Servers) -> None:
    """It has lent its place while it had no text, and gets one when the other server process gives one up."""
    one, other = servers.pools
    resting = one.open(params(one, 0, num_frames=60))
    resting.push_text("Well then, ")
    first = await resting.next_event()  # so it has a slot before the others come
    assert isinstance(first, PcmChunk)
    resting.grant(first.num_frames)
    others = [begun(other, seed, num_frames=400) for seed in range(1, 6)]  # four slots, and one that waits for another
    await until(lambda: bool(servers.engines[0].resting))
    others.append(begun(other, 6, num_frames=400))
    assert servers.engines[0].num_places == 6
    resting.push_text("here we are again, all of us.")
    resting.end_text()
    await until(lambda: resting in servers.engines[0].placement._waiting)
    assert not resting.run_id
    others.pop().cancel()
    await until(lambda: bool(resting.run_id))
    for stream in others:
        stream.cancel()
    heard = await listen(resting, one.info.frame_samples, next_frame=first.num_frames)
    assert heard.end.reason is FinishReason.MAX_FRAMES and heard.end.num_frames == 60


async def test_a_standby_takes_over_for_all_servers_alike() -> None:
    async with two_servers(CONFIG, replace(CONFIG, is_standby=True)) as servers:
        stream = begun(servers.pools[0], 1)
        await stream.next_event()
        await until(lambda: all(pair.state is EngineState.READY for pair in servers.owner._pairs))
        os.kill(servers.worker_pids[0], signal.SIGKILL)
        await until(lambda: all(pool._pairs[0].is_standby for pool in servers.pools))
        assert [pair.is_standby for pair in servers.owner._pairs] == [True, False]
        stream.cancel()
        await until(lambda: all(pair.state is EngineState.READY for pair in servers.owner._pairs))
        await servers.pools[0].close()
        servers.owner.leave(0)
        await servers.owner.clear(0)
        servers.pools[0] = await servers.join(0)
        assert [pair.is_standby for pair in servers.pools[0]._pairs] == [True, False]
        assert (await said(servers.pools[0], 1)).end.reason is FinishReason.MAX_FRAMES


@pytest.mark.slow
async def test_a_standby_that_cannot_be_loaded_is_told_in_the_log_and_the_others_speak(
    caplog: pytest.LogCaptureFixture,
) -> None:
    without_its_card = replace(CONFIG.but(talker_device="cuda:99"), is_standby=True)
    async with two_servers(CONFIG, without_its_card) as servers:
        await until(lambda: servers.owner._pairs[1].state is EngineState.FAILED)
        assert "there is no standby: " in caplog.text
        assert not servers.owner.have_failed
        assert (await said(servers.pools[1], 1)).end.reason is FinishReason.MAX_FRAMES


@pytest.mark.slow
async def test_a_server_that_cannot_use_what_comes_has_the_workers_replaced() -> None:
    async with two_servers(CONFIG) as servers:
        pids = servers.worker_pids
        stream, other = (begun(pool, 0, num_frames=400) for pool in servers.pools)
        for each in (stream, other):
            await each.next_event()
        servers.engines[0]._running.clear()
        stream.grant(40)
        await until(lambda: bool(servers.worker_pids) and servers.worker_pids != pids)
        other.cancel()
        await until(lambda: servers.pools[1].state is EngineState.READY)
        assert (await said(servers.pools[1], 0)).end.reason is FinishReason.MAX_FRAMES


async def test_whoever_joins_learns_that_the_owner_cannot_start() -> None:
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(shared_pairs([CONFIG], 2, "false"))
        joining = asyncio.create_task(EnginePool.join(owner.configs, owner.connect(0), lambda state: None))
        await asyncio.sleep(0)
        owner.leave(0)
        with pytest.raises(EngineError, match="the process that owns the workers is gone"):
            await joining


async def test_too_many_are_refused() -> None:
    with pytest.raises(EngineError, match="17 server processes and 1 worker pairs; the most are 16 and 32"):
        async with shared_pairs([CONFIG], 17, "false"):
            pass

import logging
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import torch

from sonorant.engine.code2wav.process import main, run
from sonorant.engine.code2wav.schedule.batcher import Batcher
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.channel import PeerGone, QueueChannel
from sonorant.engine.ipc.heartbeat import Heartbeat
from sonorant.engine.ipc.messages import EndStream, FirstChunk, FrameBatch, FrameRecord, PcmBatch, PcmRecord, Shutdown
from sonorant.engine.types import FinishReason, StreamEnd
from tests.fakes import CONTEXT, DepartingChannel, FakeCode2WavRunner, begin_stream, frame_batch, published_checkpoint

END = EndStream(1, StreamEnd(FinishReason.COMPLETED, 1, 0.0, 0.0))


def settings(model: Path) -> EngineConfig:
    return EngineConfig.of(model=model, num_slots=2, code2wav_device="cpu", cpu_threads=torch.get_num_threads())


def one_frame(num_codebooks: int) -> FrameBatch:
    return frame_batch([1], [0], np.ones((1, num_codebooks), np.int16))


def test_main_loads_says_so_runs_and_stops(tiny: Path, pipe: tuple[Connection, Connection]) -> None:
    frames: DepartingChannel[FrameRecord] = DepartingChannel()
    audio: QueueChannel[PcmRecord] = QueueChannel()
    frames.publish([begin_stream(1), one_frame(4), END])
    main(settings(tiny), frames, audio, Heartbeat(), {}, pipe[1])
    kind, info = pipe[0].recv()
    assert kind == "ready" and info["num_slots"] == 2
    first, pcm, end = audio.drain()
    assert isinstance(first, FirstChunk) and first.stream_id == 1
    assert isinstance(pcm, PcmBatch) and pcm.num_frames == 1 and pcm.samples.dtype == np.int16
    assert end == END


def test_main_says_why_it_cannot_load(
    tmp_path: Path, pipe: tuple[Connection, Connection], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SystemExit) as exit:
        main(settings(tmp_path), QueueChannel(), QueueChannel(), Heartbeat(), {}, pipe[1])
    assert exit.value.code == 1
    kind, message = pipe[0].recv()
    assert kind == "unusable" and "config.json is missing" in message
    assert not caplog.records  # the parent says it, once


def test_main_exits_with_an_error_that_the_supervisor_sees(
    tiny: Path, pipe: tuple[Connection, Connection], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    frames: QueueChannel[FrameRecord] = QueueChannel()
    frames.publish([begin_stream(1), one_frame(4), one_frame(4)])  # a frame twice is a bug
    with pytest.raises(SystemExit) as exit:
        main(settings(tiny), frames, QueueChannel(), Heartbeat(), {}, pipe[1])
    assert exit.value.code == 1
    assert "code2wav stopped by an error with 1 streams open" in caplog.text


def loop() -> tuple[QueueChannel[FrameRecord], QueueChannel[PcmRecord], Batcher, FakeCode2WavRunner]:
    config = EngineConfig.of(model=published_checkpoint().folder, num_slots=2)
    return (
        QueueChannel(),
        QueueChannel(),
        Batcher(config, 2, 0.08, CONTEXT, range(1, 13)),
        FakeCode2WavRunner(config, 2),
    )


def test_shutdown_ends_the_loop() -> None:
    frames, audio, batcher, runner = loop()
    frames.publish([begin_stream(1), one_frame(16), Shutdown()])
    run(frames, audio, batcher, runner, Heartbeat())
    assert audio.drain() == [] and runner.calls == []


def test_the_loop_ends_with_either_neighbour() -> None:
    frames, audio, batcher, runner = loop()
    frames.close()
    with pytest.raises(PeerGone):
        run(frames, audio, batcher, runner, Heartbeat())
    frames, audio, batcher, runner = loop()
    frames.publish([begin_stream(1), one_frame(16)])
    audio.close()
    with pytest.raises(PeerGone):
        run(frames, audio, batcher, runner, Heartbeat())


def test_what_a_listener_needs_is_decoded_while_the_talker_is_silent() -> None:
    """Two frames, and then nothing: the loop wakes by itself before the first is played."""
    frames, audio, batcher, runner = loop()
    frames.publish([begin_stream(1), one_frame(16), frame_batch([1], [1], np.zeros((1, 16), np.int16))])

    class Inbox(QueueChannel[FrameRecord]):
        def drain(self) -> list[FrameRecord]:
            if len(runner.calls) == 2:
                return [Shutdown()]
            return frames.drain()

        def wait(self, timeout_s: float | None = None) -> None:
            assert timeout_s is not None, "nobody would wake the loop"
            frames.wait(timeout_s)

    run(Inbox(), audio, batcher, runner, Heartbeat())
    assert runner.calls == [(1, 1), (1, 1)]


def test_a_first_chunk_is_decoded_during_a_call() -> None:
    frames, audio, batcher, runner = loop()
    runner.polls_per_call = 3
    frames.publish([begin_stream(1), one_frame(16)])

    class Inbox(QueueChannel[FrameRecord]):
        """A second stream comes during the call for the first, and Shutdown after all that."""

        def drain(self) -> list[FrameRecord]:
            if runner.calls == [(1, 1)]:
                frames.publish([begin_stream(2), frame_batch([2], [0], np.zeros((1, 16), np.int16))])
            return [Shutdown()] if len(runner.calls) == 2 else frames.drain()

    run(Inbox(), audio, batcher, runner, Heartbeat())
    records = [record for record in audio.drain() if isinstance(record, PcmBatch)]
    assert [record.stream_ids.tolist() for record in records] == [[2], [1]]


def test_shutdown_during_a_call_ends_the_loop_behind_it() -> None:
    frames, audio, batcher, runner = loop()
    runner.polls_per_call = 3
    frames.publish([begin_stream(1), one_frame(16)])

    class Inbox(QueueChannel[FrameRecord]):
        def drain(self) -> list[FrameRecord]:
            assert not stopped, "nothing is read behind Shutdown"
            if not runner.calls:
                return frames.drain()
            stopped.append(True)
            return [Shutdown(), one_frame(16)]

    stopped: list[bool] = []
    run(Inbox(), audio, batcher, runner, Heartbeat())
    assert [type(record) for record in audio.drain()] == [FirstChunk, PcmBatch]

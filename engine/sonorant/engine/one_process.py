"""Runs talker and Code2Wav in one process, in turns: for the offline command, and for comparing measurements."""

import time
from collections.abc import Callable

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.code2wav.decoding import turn as code2wav_turn
from sonorant.engine.code2wav.run.runner import Code2WavRunner
from sonorant.engine.code2wav.schedule.batcher import Batcher
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.channel import QueueChannel
from sonorant.engine.ipc.messages import FrameBatch, FrameRecord, OpenStream, PcmRecord, Shutdown
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.engine.talker.schedule.scheduler import Scheduler
from sonorant.engine.talker.stepping import Stepping


class OneProcess:
    def __init__(
        self,
        checkpoint: Checkpoint,
        config: EngineConfig,
        *,
        float_output: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` drives the listeners' playout deadlines, which decide how long Code2Wav waits for larger chunks."""
        self._talker = TalkerRunner(checkpoint, config)
        self._code2wav = Code2WavRunner(checkpoint, config, float_output=float_output)
        self._scheduler = Scheduler(config, checkpoint, self._talker.num_pages)
        runner = self._code2wav
        frame_s = 1 / checkpoint.frame_rate_hz
        self._batcher = Batcher(config, runner.num_slots, frame_s, runner.context, runner.pass_sizes, clock)
        self._frames = QueueChannel[FrameRecord]()
        self._stepping = Stepping(self._frames, self._scheduler, self._talker)
        self._pcm = QueueChannel[PcmRecord]()
        self.is_idle = True

    def open(self, stream: OpenStream) -> None:
        self._scheduler.on_record(stream)

    def turn(self) -> tuple[list[FrameBatch], list[PcmRecord]]:
        """Run one turn of both and return what each made. Afterwards `is_idle` says whether there was nothing to do."""
        stepped = self._stepping.turn()
        batches = []
        for record in self._frames.drain():
            assert not isinstance(record, Shutdown)
            if isinstance(record, FrameBatch):
                batches.append(record)
            self._batcher.on_record(record)
        decoded = code2wav_turn(self._pcm, self._batcher, self._code2wav)
        self.is_idle = not (stepped.num_rows or decoded.num_rows)
        return batches, self._pcm.drain()

    def wait(self) -> None:
        """Wait until Code2Wav no longer waits for larger chunks."""
        self._frames.wait(self._batcher.wait_s or 0.0)

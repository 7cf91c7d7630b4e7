"""The Code2Wav process: frames in, calls of the decoder, audio out. The loop knows channels and runner by interface.

An exception in a call is fatal to the process, see engine.ipc.worker.
"""

from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Protocol

from engine.checkpoint import load_checkpoint
from engine.code2wav.batcher import Batcher
from engine.config import EngineConfig
from engine.ipc.channel import Inbox, Outbox
from engine.ipc.heartbeat import Heartbeat, Step
from engine.ipc.messages import FrameRecord, PcmRecord, Shutdown
from engine.ipc.worker import serve, tell_loaded
from engine.types import Float32Array, Int16Array, PassCounts


class Runner(Protocol):
    """What the loop asks of `engine.code2wav.runner.Code2WavRunner`."""

    @property
    def passes(self) -> PassCounts:
        """Of the network, since the runner was made."""

    def reset(self, slot: int) -> None:
        """Forget the stream that the slot had before."""

    def copy(self, source: int, target: int) -> None:
        """Have one slot remember what another does."""

    def decode(self, slots: Sequence[int], codes: Int16Array) -> Int16Array | Float32Array:
        """Samples of each row's frames: [rows, frames, codebooks] -> [rows, frames * frame_samples]."""


def run(
    inbox: Inbox[FrameRecord], outbox: Outbox[PcmRecord], batcher: Batcher, runner: Runner, heartbeat: Heartbeat
) -> None:
    """The loop. Returns on Shutdown; raises PeerGone when a neighbour is gone."""
    while True:
        for record in inbox.drain():
            if isinstance(record, Shutdown):
                return
            batcher.on_record(record)
        heartbeat.busy()
        step = turn(outbox, batcher, runner)
        heartbeat.idle(step, runner.passes)
        if not step.num_rows:
            batcher.check_conservation()
            inbox.wait(batcher.wait_s)


def turn(outbox: Outbox[PcmRecord], batcher: Batcher, runner: Runner) -> Step:
    """One call of the decoder, if anything is due."""
    plan = batcher.next_batch()
    if plan.records:
        outbox.publish(plan.records)
    for source, target in plan.copies:
        runner.copy(source, target)
    if not plan.slots:
        return Step(0)
    for slot in plan.new_slots:
        runner.reset(slot)
    records = batcher.apply(runner.decode(plan.slots, plan.codes))
    if records:
        outbox.publish(records)
    return Step(num_rows=len(plan.slots))


def main(
    config: EngineConfig,
    inbox: Inbox[FrameRecord],
    outbox: Outbox[PcmRecord],
    heartbeat: Heartbeat,
    ready: Connection,
) -> None:
    """Entry of the child process."""
    batcher, runner = tell_loaded("code2wav", ready, lambda: _load(config))
    serve("code2wav", lambda: run(inbox, outbox, batcher, runner, heartbeat), lambda: batcher.num_streams)


def _load(config: EngineConfig) -> tuple[tuple[Batcher, Runner], Mapping[str, object]]:
    import torch  # here, because the parent imports this module and must stay without torch

    from engine.code2wav.runner import Code2WavRunner
    from engine.cuda import use_device
    from engine.model.memory import check_fit, code2wav_need, free_bytes

    torch.set_num_threads(config.threads("code2wav"))
    device = use_device(config.code2wav_device)
    checkpoint = load_checkpoint(config.model)
    if device.type == "cuda":
        check_fit("the codec", code2wav_need(checkpoint, config), free_bytes(device))
    runner = Code2WavRunner(checkpoint, config)
    batcher = Batcher(config, runner.num_slots, 1 / checkpoint.frame_rate_hz)
    info = {"device": str(device), "threads": torch.get_num_threads(), "num_slots": runner.num_slots}
    return (batcher, runner), info

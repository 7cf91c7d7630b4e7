"""The talker process: commands in, steps of the model, frames out. The loop knows its channels and runner by interface.

An exception in a step ends the process, see sonorant.engine.ipc.worker. Faults of single streams are found before a
step, see sonorant.engine.talker.schedule.faults.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.deferred_work import sooner
from sonorant.engine.ipc.channel import PeerGone, RecordInbox, RecordOutbox
from sonorant.engine.ipc.heartbeat import Heartbeat, Step
from sonorant.engine.ipc.messages import (
    BeginStream,
    Command,
    EndStream,
    FlushStream,
    FrameBatch,
    FrameRecord,
    Shutdown,
    StoredRecord,
)
from sonorant.engine.ipc.ring import RingOutbox
from sonorant.engine.ipc.worker import give_way, report_loaded, serve
from sonorant.engine.talker.first_chunk import CodecTurn, FirstChunkWait
from sonorant.engine.talker.schedule.admission import BackgroundLimits
from sonorant.engine.talker.schedule.scheduler import Scheduler
from sonorant.engine.talker.stepping import Stepping, StepRunner
from sonorant.logs import start

if TYPE_CHECKING:
    import torch


def run(
    inbox: RecordInbox[Command],
    outbox: RecordOutbox[FrameRecord],
    scheduler: Scheduler,
    runner: StepRunner,
    heartbeat: Heartbeat,
    between_steps: Callable[[Step], None] = lambda step: None,
) -> None:
    """Run the process's loop. Returns on Shutdown; raises PeerGone when a neighbour is gone.

    `between_steps` is called after each step and may delay the next one.
    """
    stepping = Stepping(outbox, scheduler, runner)
    early: list[Command] = []  # read during a step, taken after it

    def read_early() -> None:
        with suppress(PeerGone):  # the loop below will find out
            early.extend(inbox.drain())

    while True:
        is_over = _take(early, outbox, scheduler)
        early.clear()
        if is_over or _take(inbox.drain(), outbox, scheduler):
            return
        heartbeat.busy()
        step = stepping.turn(read_early)
        heartbeat.idle(step, runner.passes)
        between_steps(step)
        more_s = runner.do_deferred()
        if not step.num_rows:
            scheduler.check_conservation()
            inbox.wait(sooner(scheduler.wait_s, more_s))


def _take(commands: Sequence[Command], outbox: RecordOutbox[FrameRecord], scheduler: Scheduler) -> bool:
    """Take commands. Returns True after Shutdown, which is passed on."""
    passing: list[StoredRecord] = []  # of stored codes, which the talker only passes on
    for command in commands:
        match command:
            case Shutdown():
                outbox.publish([command])
                return True
            case BeginStream() | FrameBatch() | FlushStream() | EndStream():
                passing.append(command)
            case _:
                scheduler.on_record(command)
    if passing:
        outbox.publish(passing)
    return False


def main(
    config: EngineConfig,
    inbox: RecordInbox[Command],
    outbox: RingOutbox[FrameRecord],
    heartbeat: Heartbeat,
    codec: Heartbeat,
    facts: Mapping[str, Any],
    ready: Connection,
) -> None:
    """Entry point of the child process. `codec`: the heartbeat of the Code2Wav process, only read here. `facts`: what
    the talker that this one replaces, or stands by for, reported when it was loaded; empty if there was none."""
    scheduler, runner, wait = report_loaded("talker", ready, lambda: _load(config, outbox, facts))
    waits = [] if wait is None else [wait(outbox, codec)]
    serve("talker", lambda: run(inbox, outbox, scheduler, runner, heartbeat, *waits), lambda: scheduler.num_streams)


def _load(
    config: EngineConfig, outbox: RecordOutbox[FrameRecord], facts: Mapping[str, Any]
) -> tuple[tuple[Scheduler, StepRunner, type[CodecTurn] | None], Mapping[str, object]]:
    """Return the scheduler, the runner, how steps wait for Code2Wav, and the info for the supervisor."""
    import torch  # here, because the parent imports this module and must stay without torch

    from sonorant.engine.card.device import free_bytes
    from sonorant.engine.cpu.library import leave_cores_to_functions, use_threads
    from sonorant.engine.cuda import find_device, use_device
    from sonorant.engine.model.alignment import AlignmentHead
    from sonorant.engine.model.memory import check_fit, talker_need
    from sonorant.engine.talker.run.runner import TalkerRunner
    from sonorant.engine.talker.run.speech_sample import speech_sample

    use_threads(config.threads("talker"))
    device = use_device(config.talker.device)
    if device.type == "cpu":
        give_way()
    checkpoint = load_checkpoint(config.model)
    if device.type == "cuda":
        check_fit("the talker", talker_need(checkpoint, config), free_bytes(device))
    start.phase("device")
    if facts:  # finding the alignment head takes as long as everything else, and others may be using the GPU now
        head = facts["alignment_head"] and AlignmentHead(*facts["alignment_head"])
        runner = TalkerRunner(checkpoint, config, alignment_head=head, hurries=True)
    else:
        runner = TalkerRunner(checkpoint, config, finds_alignment=config.load_format != "dummy")
    # Before the sample, for which the codec waits: it measures its own times after that, so neither disturbs the other.
    step_s = facts["step_s"] if facts else runner.step_times()
    start.phase("durations of steps")
    if not facts and config.code2wav.dtype == "auto" and find_device(config.code2wav.device).type == "cuda":
        outbox.publish([speech_sample(runner.step, checkpoint, config)])
        start.phase("sample for Code2Wav")
    background_limits = BackgroundLimits.of(config.talker.num_slots, on_cuda=device.type == "cuda")
    scheduler = Scheduler(config, checkpoint, runner.num_pages, background_limits=background_limits)
    wait = _wait(config, device)
    info = {
        "device": str(device),
        "threads": torch.get_num_threads(),
        "num_pages": runner.num_pages,
        "step_s": step_s,
        "in_turns": wait is not None or device.type == "cuda",
        "bounds_streams": runner.is_rounded or device.type == "cuda",
        "alignment_head": runner.alignment_head and astuple(runner.alignment_head),
    }
    if runner.is_rounded:
        leave_cores_to_functions()
    return (scheduler, runner, wait), info


def _wait(config: EngineConfig, device: "torch.device") -> type[CodecTurn] | None:
    from sonorant.engine.cuda import find_device

    if find_device(config.code2wav.device) != device:
        return None
    if device.type == "cuda":
        return FirstChunkWait
    return CodecTurn if config.takes_turns else None

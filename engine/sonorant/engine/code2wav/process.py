"""The Code2Wav process: frames in, calls of the decoder, audio out. The loop knows channels and runner by interface.

An exception in a call ends the process, see sonorant.engine.ipc.worker.
"""

import logging
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.code2wav.decoding import DecodeRunner, turn
from sonorant.engine.code2wav.schedule.batcher import Batcher
from sonorant.engine.code2wav.schedule.formats import FASTEST_FIRST
from sonorant.engine.config import EngineConfig
from sonorant.engine.deferred_work import sooner
from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.channel import PeerGone, RecordInbox, RecordOutbox
from sonorant.engine.ipc.heartbeat import Heartbeat
from sonorant.engine.ipc.messages import SAMPLE_STREAM, FrameBatch, FrameRecord, PcmRecord, Shutdown
from sonorant.engine.ipc.worker import give_way, report_loaded, serve
from sonorant.engine.types import Int16Array
from sonorant.logs import start

log = logging.getLogger(__name__)


def run(
    inbox: RecordInbox[FrameRecord],
    outbox: RecordOutbox[PcmRecord],
    batcher: Batcher,
    runner: DecodeRunner,
    heartbeat: Heartbeat,
) -> None:
    """Run the process's loop. Returns on Shutdown; raises PeerGone when a neighbour is gone."""
    is_over = False

    def read() -> bool:
        nonlocal is_over
        records = [] if is_over else inbox.drain()
        for record in records:
            if isinstance(record, Shutdown):
                is_over = True
                break
            batcher.on_record(record)
        return bool(records)

    while True:
        heartbeat.busy()  # before reading: the talker may wait until its records are read and worked on
        read()
        if is_over:
            return
        step = turn(outbox, batcher, runner, read)
        heartbeat.idle(step, runner.passes)
        more_s = runner.do_deferred()
        if not step.num_rows:
            batcher.check_conservation()
            inbox.wait(sooner(batcher.wait_s, more_s))


def main(
    config: EngineConfig,
    inbox: RecordInbox[FrameRecord],
    outbox: RecordOutbox[PcmRecord],
    heartbeat: Heartbeat,
    facts: Mapping[str, Any],
    ready: Connection,
) -> None:
    """Entry point of the child process. `facts`: what the process that this one replaces, or stands by for, reported
    when it was loaded; empty if there was none."""
    batcher, runner = report_loaded("code2wav", ready, lambda: _load(config, inbox, facts))
    serve("code2wav", lambda: run(inbox, outbox, batcher, runner, heartbeat), lambda: batcher.num_streams)


def _load(
    config: EngineConfig, inbox: RecordInbox[FrameRecord], facts: Mapping[str, Any]
) -> tuple[tuple[Batcher, DecodeRunner], Mapping[str, object]]:
    import torch  # here, because the parent imports this module and must stay without torch

    from sonorant.engine.card.device import free_bytes
    from sonorant.engine.code2wav.run.runner import Code2WavRunner, runner_in_fitting_format
    from sonorant.engine.cpu.library import leave_cores_to_functions, use_threads
    from sonorant.engine.cuda import use_device
    from sonorant.engine.model.memory import check_fit, code2wav_need

    use_threads(config.threads("code2wav"))
    device = use_device(config.code2wav.device)
    if device.type == "cpu":
        give_way()
    checkpoint = load_checkpoint(config.model)
    if device.type == "cuda":
        check_fit("the codec", code2wav_need(checkpoint, config), free_bytes(device))
    start.phase("device")
    if config.code2wav.dtype != "auto":
        runner, why = Code2WavRunner(checkpoint, config), "as configured"
    elif facts:
        as_before = config.but(code2wav_dtype=facts["format"])
        runner, why = Code2WavRunner(checkpoint, as_before, hurries=True), "as before"
    elif device.type == "cpu":
        runner, why = Code2WavRunner(checkpoint, config.but(code2wav_dtype="float32")), "on the CPU"
    else:
        # Make it in the likely format while the talker is still loading; the sample comes from the talker's `_load`.
        likely = Code2WavRunner(checkpoint, config.but(code2wav_dtype=FASTEST_FIRST[0]))
        sample = _speech_sample(inbox)
        start.phase("waiting for the talker")
        runner, why = runner_in_fitting_format(likely, checkpoint, config, sample)
        start.phase("comparison of formats")
    log.info("codec in %s: %s", runner.format, why)
    batcher = Batcher(config, runner.num_slots, 1 / checkpoint.frame_rate_hz, runner.context, runner.pass_sizes)
    info = {
        "device": str(device),
        "threads": torch.get_num_threads(),
        "num_slots": runner.num_slots,
        "format": runner.format,
        "frame_s": facts["frame_s"] if facts else runner.frame_time(),
    }
    start.phase("duration of a call")
    if runner.is_rounded:
        leave_cores_to_functions()
    return (batcher, runner), info


def _speech_sample(inbox: RecordInbox[FrameRecord]) -> Int16Array:
    """Return the codes [frames, codebooks] of a sample, which is the first record that the talker sends."""
    try:
        while not (records := inbox.drain()):
            inbox.wait()
    except PeerGone:
        raise EngineError("the talker stopped before it sent the speech to choose code2wav_dtype by") from None
    (sample,) = records
    assert isinstance(sample, FrameBatch) and (sample.stream_ids == SAMPLE_STREAM).all()
    return sample.codes

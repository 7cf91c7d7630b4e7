"""The whole cycle in one thread: commands on ring A, both loops with fake runners, audio on ring C.

The workers may die at any point: records on their way are lost, and streams continue after the frames that were heard.
"""

import contextlib
from dataclasses import dataclass, field
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.engine.code2wav import process as code2wav_process
from sonorant.engine.code2wav.schedule.batcher import Batcher
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.heartbeat import Heartbeat
from sonorant.engine.ipc.messages import (
    CancelStream,
    Command,
    EndServer,
    EndText,
    FirstChunk,
    FrameRecord,
    GrantCredit,
    OpenStream,
    PcmBatch,
    PcmRecord,
    PushText,
    Shutdown,
)
from sonorant.engine.ipc.server_ids import new_ids, server_of
from sonorant.engine.talker import process as talker_process
from sonorant.engine.talker.schedule.admission import ONE_STREAM, BackgroundLimits
from sonorant.engine.talker.schedule.scheduler import Scheduler
from sonorant.engine.talker.stepping import Stepping
from sonorant.engine.types import FinishReason, StreamEnd
from tests.fakes import (
    CONTEXT,
    FRAME_SAMPLES,
    FakeClock,
    FakeCode2WavRunner,
    FakeTalkerRunner,
    Parked,
    SteppedChannel,
    expected_codes,
    expected_pcm,
    open_stream,
    published_checkpoint,
    reopened,
)

CHECKPOINT = published_checkpoint()
HEARTBEAT = Heartbeat()
NUM_STREAMS = 6


@dataclass
class Listener:
    """One stream as the service sees it."""

    command: OpenStream
    text: list[int]
    text_ended: bool
    granted: int
    is_open: bool = False
    is_cancelled: bool = False
    codes: list[list[int]] = field(default_factory=list)
    pcm: list[int] = field(default_factory=list)
    num_taken: int = 0
    first: FirstChunk | None = None
    end: StreamEnd | None = None

    @property
    def num_frames(self) -> int:
        return len(self.pcm) // FRAME_SAMPLES

    @property
    def is_runnable(self) -> bool:
        return (self.text_ended or self.num_frames <= len(self.text)) and self.num_frames < self.granted

    def opening(self) -> OpenStream:
        """The record that opens the stream in its present state."""
        return reopened(self.command, self.text, self.text_ended, self.granted, self.codes)


class Cycle:
    def __init__(
        self, config: EngineConfig, num_pages: int, *, is_ahead: bool = False, limits: BackgroundLimits = ONE_STREAM
    ) -> None:
        """`is_ahead`: the talker decides steps before it knows the result of the one before."""
        self.clock = FakeClock()
        self._is_ahead = is_ahead
        self._config, self._num_pages, self._limits = config, num_pages, limits
        self.listeners: dict[int, Listener] = {}
        self.servers_ending: list[int] = []  # their EndServer has not come back yet
        self.start()

    def start(self) -> None:
        config, num_pages = self._config, self._num_pages
        self.commands: SteppedChannel[Command] = SteppedChannel()
        self.frames: SteppedChannel[FrameRecord] = SteppedChannel()
        self.audio: SteppedChannel[PcmRecord] = SteppedChannel()
        self.scheduler = Scheduler(config, CHECKPOINT, num_pages, self.clock, self._limits)
        pass_sizes = sorted({1, *config.code2wav.chunk_ramp})  # as on CUDA, where the last chunk is padded
        self.batcher = Batcher(config, config.talker.num_slots, 0.08, CONTEXT, pass_sizes, self.clock)
        self.talker = FakeTalkerRunner(CHECKPOINT, config, num_pages)
        self.talker.is_asynchronous = self._is_ahead
        self._stepping = Stepping(self.frames, self.scheduler, self.talker, ahead_from=2)
        self.code2wav = FakeCode2WavRunner(config, config.talker.num_slots)

    def die(self) -> None:
        """Both workers die; records that were not read yet are lost."""
        self.start()
        self.servers_ending.clear()
        for listener in self.listeners.values():
            if listener.end is None:
                listener.is_open = False
                if listener.is_cancelled:
                    listener.end = StreamEnd(FinishReason.CANCELLED, listener.num_frames, 0.0, 0.0)
                self._go_on(listener)

    def _go_on(self, listener: Listener) -> None:
        """Open the listener's stream, unless it is open or has nothing to do next."""
        if not listener.is_open and listener.end is None and listener.is_runnable:
            listener.is_open, listener.first = True, None
            self.commands.publish([listener.opening()])

    def _send(self, listener: Listener, command: Command) -> None:
        if listener.is_open:
            self.commands.publish([command])
        else:
            self._go_on(listener)

    def open(self, command: OpenStream) -> None:
        plan = command.plan
        listener = Listener(command, list(plan.trailing), plan.text_ended, command.credit_frames)
        self.listeners[command.stream_id] = listener
        self._go_on(listener)

    def push_text(self, stream_id: int, *token_ids: int) -> None:
        listener = self.listeners[stream_id]
        if not listener.text_ended:
            listener.text += token_ids
            self._send(listener, PushText(stream_id, token_ids))

    def end_text(self, stream_id: int) -> None:
        listener = self.listeners[stream_id]
        if not listener.text_ended:
            listener.text_ended = True
            self._send(listener, EndText(stream_id))

    def cancel(self, stream_id: int) -> None:
        listener = self.listeners[stream_id]
        listener.is_cancelled = True
        if listener.is_open:
            self.commands.publish([CancelStream(stream_id)])
        elif listener.end is None:
            listener.end = StreamEnd(FinishReason.CANCELLED, listener.num_frames, 0.0, 0.0)

    def end_server(self, server: int) -> None:
        """The server process `server` dies, and its streams are ended in its place. It may be replaced."""
        for listener in self.listeners.values():
            if server_of(listener.command.stream_id) == server and listener.end is None:
                listener.is_cancelled = True
                if not listener.is_open:
                    listener.end = StreamEnd(FinishReason.CANCELLED, listener.num_frames, 0.0, 0.0)
        self.servers_ending.append(server)
        self.commands.publish([EndServer(server)])

    def take(self, stream_id: int, at_most: int) -> int:
        """The listener takes frames that were sent to it, and grants as many."""
        listener = self.listeners[stream_id]
        count = min(at_most, listener.num_frames - listener.num_taken)
        if count:
            listener.num_taken += count
            listener.granted += count
            self._send(listener, GrantCredit(stream_id, count))
        return count

    def run_talker(self, turns: int) -> None:
        self.commands.turns_left = 2 * turns - 1  # a step reads, too
        # What is under way goes on with the next turns.
        kept = patch.object(talker_process, "Stepping", lambda *_: self._stepping)
        with contextlib.suppress(Parked), kept:
            talker_process.run(self.commands, self.frames, self.scheduler, self.talker, HEARTBEAT)

    def run_code2wav(self, turns: int) -> None:
        self.frames.turns_left = turns
        with contextlib.suppress(Parked):
            code2wav_process.run(self.frames, self.audio, self.batcher, self.code2wav, HEARTBEAT)
        self._listen()

    def _listen(self) -> None:
        self.audio.turns_left = 1
        for record in self.audio.drain():
            if isinstance(record, FirstChunk):
                assert self.listeners[record.stream_id].first is None, "two first chunks"
                self.listeners[record.stream_id].first = record
                continue
            if isinstance(record, EndServer):
                assert record.server == self.servers_ending.pop(0)
                for listener in self.listeners.values():
                    if server_of(listener.command.stream_id) == record.server:
                        assert listener.end is not None, "the server process ended before its streams"
                continue
            if not isinstance(record, PcmBatch):
                listener = self.listeners[record.stream_id]
                assert listener.end is None, "two ends"
                if record.end.reason is FinishReason.YIELDED and not listener.is_cancelled:
                    assert record.end.num_frames == listener.num_frames, "ended before all was heard"
                    listener.is_open = False
                    self._go_on(listener)
                    continue
                listener.end = record.end
                continue
            rows = (record.stream_ids, record.first_frames, record.samples, record.codes)
            for stream_id, first, samples, codes in zip(*(row.tolist() for row in rows), strict=True):
                listener = self.listeners[stream_id]
                assert listener.end is None, "audio after the end"
                assert listener.first is not None, "audio without the times of the first"
                assert first == listener.num_frames, "audio out of order"
                listener.pcm += samples
                listener.codes += codes
                assert len(listener.codes) == listener.num_frames
                assert listener.num_frames - listener.num_taken <= listener.command.credit_frames, "beyond the credit"

    def settle(self) -> None:
        """End all texts, run both workers and take all audio until nothing moves. The clock stands still."""
        for stream_id in self.listeners:
            self.end_text(stream_id)
        while True:
            steps, calls = self.talker.num_steps, len(self.code2wav.calls)
            self.run_talker(1000)
            self.run_code2wav(1000)
            num_taken = sum(self.take(stream_id, 1000) for stream_id in self.listeners)
            if not num_taken and (steps, calls) == (self.talker.num_steps, len(self.code2wav.calls)):
                return

    def check_end(self) -> None:
        """Check that every stream was answered in full, and that the workers hold nothing for any."""
        assert self.scheduler.num_streams == self.batcher.num_streams == 0
        assert not self.servers_ending
        self.scheduler.check_conservation()
        self.batcher.check_conservation()
        for listener in self.listeners.values():
            assert listener.end is not None, "no end"
            codes, reason = expected_codes(CHECKPOINT, listener.command, listener.text)
            wanted = expected_pcm(codes, listener.command.reference_codes).tolist()
            assert listener.codes == codes.tolist()[: len(listener.codes)]
            if listener.end.reason in (FinishReason.CANCELLED, FinishReason.YIELDED):
                assert listener.is_cancelled
                assert listener.pcm == wanted[: len(listener.pcm)]
                assert listener.end.num_frames * FRAME_SAMPLES >= len(listener.pcm)
            else:
                assert (listener.pcm, listener.end.reason) == (wanted, reason)
                assert listener.end.num_frames == len(codes)


streams = st.builds(
    dict,
    num_rows=st.integers(1, 30),
    trailing=st.lists(st.integers(11, 999), max_size=4).map(tuple),
    text_ended=st.booleans(),
    max_frames=st.integers(1, 24),
    min_frames=st.integers(0, 3),
    ignore_eos=st.booleans(),
    credit_frames=st.integers(1, 10),
    num_reference_frames=st.sampled_from([0, 0, 3, 40]),
    voice=st.sampled_from([None, 1, 2]),
    is_background=st.booleans(),
)
actions = st.lists(
    st.tuples(
        st.sampled_from(
            ["open", "open", "text", "text", "end", "cancel", "take", "take", "clock", "die", "end server"]
            + ["turn"] * 12
        ),
        st.integers(1, NUM_STREAMS),
    ),
    min_size=60,
    max_size=150,
)


@settings(max_examples=60)
@given(
    specs=st.lists(streams, min_size=NUM_STREAMS, max_size=NUM_STREAMS),
    actions=actions,
    num_slots=st.integers(1, 4),
    num_pages=st.integers(7, 20),
    max_prefill_rows=st.integers(1, 40),
    chunk_ramp=st.lists(st.integers(1, 12), min_size=1, max_size=5).map(tuple),
    max_decode_batch=st.integers(1, 4),
    is_ahead=st.booleans(),
    limits=st.builds(BackgroundLimits, most_streams=st.integers(1, 3), most_rows=st.integers(0, 4)),
)
def test_any_schedule_ends_clean(
    specs: list[dict[str, int]],
    actions: list[tuple[str, int]],
    num_slots: int,
    num_pages: int,
    max_prefill_rows: int,
    chunk_ramp: tuple[int, ...],
    max_decode_batch: int,
    is_ahead: bool,
    limits: BackgroundLimits,
) -> None:
    config = EngineConfig.of(
        model=CHECKPOINT.folder,
        num_slots=num_slots,
        page_size=8,
        max_context=64,
        max_prefill_rows=max_prefill_rows,
        chunk_ramp=chunk_ramp,
        max_decode_batch=max_decode_batch,
    )
    cycle = Cycle(config, num_pages, is_ahead=is_ahead, limits=limits)
    for action, number in actions:
        server = number % 2
        stream_id = next(new_ids(server, generation=number))
        match action:
            case "turn" if number % 2:
                cycle.run_talker(number)
            case "turn":
                cycle.run_code2wav(number // 2)
            case "clock":
                cycle.clock.now_s += 0.03 * number**3  # up to 6.5 s
            case "die":
                cycle.die()
            case _ if server in cycle.servers_ending:
                pass
            case "end server":
                cycle.end_server(server)
            case "open" if stream_id not in cycle.listeners:
                cycle.open(open_stream(stream_id, **specs[number - 1]))
            case _ if stream_id not in cycle.listeners:
                pass
            case "text":
                cycle.push_text(stream_id, 100 + number, 200 + number)
            case "end":
                cycle.end_text(stream_id)
            case "cancel":
                cycle.cancel(stream_id)
            case "take":
                cycle.take(stream_id, 3)
    cycle.settle()
    cycle.check_end()


def test_a_cancel_stops_the_step_that_follows_it() -> None:
    cycle = Cycle(EngineConfig(model=CHECKPOINT.folder), num_pages=64)
    cycle.open(open_stream(1, text_ended=True, ignore_eos=True, max_frames=100))
    cycle.run_talker(5)
    cycle.cancel(1)
    steps = cycle.talker.num_steps
    cycle.run_talker(5)
    assert cycle.talker.num_steps == steps == 5
    cycle.run_code2wav(5)
    assert cycle.code2wav.calls == [], "what nobody will hear is not decoded"
    cycle.check_end()


def test_shutdown_goes_down_the_path() -> None:
    cycle = Cycle(EngineConfig(model=CHECKPOINT.folder), num_pages=64)
    cycle.open(open_stream(1, text_ended=True))
    cycle.commands.publish([Shutdown()])
    cycle.commands.turns_left = cycle.frames.turns_left = 1
    talker_process.run(cycle.commands, cycle.frames, cycle.scheduler, cycle.talker, HEARTBEAT)
    code2wav_process.run(cycle.frames, cycle.audio, cycle.batcher, cycle.code2wav, HEARTBEAT)
    assert cycle.talker.num_steps == 0

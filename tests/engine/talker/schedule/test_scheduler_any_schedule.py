"""Whatever comes in whatever order, every stream is served as if it were alone, and ends once.

A talker may also die, at any point: streams then go on in another one, behind the frames that they had. So do batch
streams that give way to others."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import (
    BeginStream,
    CancelStream,
    EndStream,
    EndText,
    FlushStream,
    FrameBatch,
    FrameRecord,
    GrantCredit,
    OpenStream,
    PushText,
)
from sonorant.engine.talker.schedule.admission import BackgroundLimits
from sonorant.engine.talker.schedule.scheduler import Scheduler, StreamCommand
from sonorant.engine.types import FinishReason
from tests.fakes import FakeClock, FakeTalkerRunner, expected_codes, open_stream, published_checkpoint, reopened

CHECKPOINT = published_checkpoint()
NUM_STREAMS = 6


@dataclass
class Truth:
    """What a stream has been given and what it has answered."""

    command: OpenStream
    credit: int
    text: list[int]
    text_ended: bool
    is_cancelled: bool = False
    codes: list[list[int]] = field(default_factory=list)
    num_begins: int = 0
    num_flushes: int = 0
    is_paused: bool = False
    num_known: int = 0  # frames that it had when it was opened here
    is_parked: bool = False  # its talker died, and it has nothing to go on with
    end: EndStream | None = None

    @property
    def can_step(self) -> bool:
        has_text = self.text_ended or len(self.codes) <= len(self.text)
        return has_text and len(self.codes) < self.credit

    def opening(self) -> OpenStream:
        """Of the stream as it is now."""
        return reopened(self.command, self.text, self.text_ended, self.credit, self.codes)


streams = st.builds(
    dict,
    num_rows=st.integers(1, 40),
    trailing=st.lists(st.integers(11, 999), max_size=4).map(tuple),
    text_ended=st.booleans(),
    max_frames=st.integers(1, 16),
    min_frames=st.integers(0, 3),
    ignore_eos=st.booleans(),
    credit_frames=st.integers(1, 6),
    num_reference_frames=st.integers(0, 2),
    voice=st.sampled_from([None, 1, 2]),
    caller=st.integers(0, 2),
    is_background=st.booleans(),
)
actions = st.lists(
    st.tuples(st.sampled_from(["open", "text", "end", "grant", "cancel", "die", *["step"] * 8]), st.integers(0, 5)),
    min_size=60,
    max_size=120,
)


def new_talker(config: EngineConfig, num_pages: int, limits: BackgroundLimits) -> tuple[Scheduler, FakeTalkerRunner]:
    scheduler = Scheduler(config, CHECKPOINT, num_pages, FakeClock(), limits)
    return scheduler, FakeTalkerRunner(CHECKPOINT, config, num_pages)


@settings(max_examples=75)
@given(
    specs=st.lists(streams, min_size=NUM_STREAMS, max_size=NUM_STREAMS),
    actions=actions,
    num_slots=st.integers(1, 4),
    num_pages=st.integers(14, 30),
    max_prefill_rows=st.integers(1, 50),
    limits=st.builds(BackgroundLimits, most_streams=st.integers(1, 4), most_rows=st.integers(0, 4)),
)
def test_any_schedule(
    specs: list[dict[str, int]],
    actions: list[tuple[str, int]],
    num_slots: int,
    num_pages: int,
    max_prefill_rows: int,
    limits: BackgroundLimits,
) -> None:
    config = EngineConfig.of(
        model=CHECKPOINT.folder, num_slots=num_slots, page_size=4, max_prefill_rows=max_prefill_rows, max_context=64
    )
    scheduler, runner = new_talker(config, num_pages, limits)
    truths: dict[int, Truth] = {}

    def step() -> None:
        plan = scheduler.next_step()
        check(plan.records)
        # Streams that can go on do so in every step, however long the prompts beside are; of background all or none.
        live = [t for t in truths.values() if len(t.codes) > t.num_known and t.can_step and not t.end]
        listened = [t for t in live if not t.command.is_background]
        prompts = [truths[row.sampling.seed].command for row in plan.prefills]
        if (listened and len(live) > limits.most_rows) or not all(prompt.is_background for prompt in prompts):
            assert not any(prompt.is_background for prompt in prompts)
            assert len(plan.decodes) == len(listened)
        else:
            assert len(plan.decodes) == len(live)
        inside = [t for t in truths.values() if t.num_begins and not t.end and t.command.is_background]
        assert len(inside) <= limits.most_streams
        if plan.has_rows:
            check(scheduler.apply(plan, runner.step(plan.prefills, plan.decodes)))
        scheduler.check_conservation()
        for truth in [each for each in truths.values() if each.is_parked]:
            send(truth, truth.command)
        for truth in truths.values():
            is_fresh = len(truth.codes) == truth.num_known
            assert truth.is_paused or truth.can_step or is_fresh or truth.end, "stopped without a flush"

    def send(truth: Truth, command: StreamCommand) -> None:
        if not truth.is_parked:
            scheduler.on_record(command)
        elif truth.can_step:
            truth.is_parked = False
            scheduler.on_record(truth.opening())

    def die() -> None:
        nonlocal scheduler, runner
        scheduler, runner = new_talker(config, num_pages, limits)
        for truth in list(truths.values()):
            if truth.end is None and not truth.is_parked:
                park(truth)
        for truth in [each for each in truths.values() if each.is_parked]:
            send(truth, truth.command)

    def park(truth: Truth) -> None:
        truth.num_known, truth.num_begins, truth.is_paused = len(truth.codes), 0, False
        truth.is_parked = True
        if truth.is_cancelled:  # which the engine answers by itself
            del truths[truth.command.stream_id]

    def check(records: Sequence[FrameRecord]) -> None:
        for record in records:
            if isinstance(record, FrameBatch):
                for stream_id, index, codes in zip(
                    record.stream_ids.tolist(), record.frame_indices.tolist(), record.codes.tolist(), strict=True
                ):
                    truth = truths[stream_id]
                    assert truth.can_step and not truth.is_cancelled and truth.end is None and truth.num_begins == 1
                    assert index == len(truth.codes)
                    truth.codes.append(codes)
                    truth.is_paused = False
                continue
            assert isinstance(record, BeginStream | FlushStream | EndStream)
            truth = truths[record.stream_id]
            assert truth.end is None, "nothing comes after the end"
            match record:
                case BeginStream():
                    truth.num_begins += 1
                case FlushStream():
                    assert not truth.is_paused and not truth.can_step, "flushed twice, or with more to come"
                    truth.is_paused = True
                case EndStream(end=end) if end.reason is FinishReason.YIELDED:
                    assert truth.command.is_background and end.num_frames == len(truth.codes)
                    park(truth)
                case EndStream():
                    truth.end = record

    def act(action: str, index: int) -> None:
        stream_id = index + 1
        if action == "step":
            step()
        elif action == "die":
            die()
        elif action == "open" and stream_id not in truths:
            command = open_stream(stream_id, **specs[index])
            plan = command.plan
            truths[stream_id] = Truth(command, command.credit_frames, list(plan.trailing), plan.text_ended)
            scheduler.on_record(command)
        elif truth := truths.get(stream_id):
            if action == "text" and not truth.text_ended:
                ids = (100 + len(truth.text), 500 + stream_id)
                truth.text += ids
                send(truth, PushText(stream_id, ids))
            elif action == "end" and not truth.text_ended:
                truth.text_ended = True
                send(truth, EndText(stream_id))
            elif action == "grant":
                truth.credit += 2
                send(truth, GrantCredit(stream_id, 2))
            elif action == "cancel":
                truth.is_cancelled = True
                if truth.is_parked:  # likewise
                    del truths[stream_id]
                else:
                    send(truth, CancelStream(stream_id))

    for action, index in actions:
        act(action, index)

    # Nobody who can go on is left behind, and with text and credit for all everything ends within a known time.
    for index in range(NUM_STREAMS):
        act("end", index)
        for _ in range(10):
            act("grant", index)
    num_prompt_rows = sum(truth.command.plan.num_rows + truth.num_known for truth in truths.values())
    num_yields = NUM_STREAMS  # at most, of a stream: by now, no others come
    num_frames = sum(truth.command.sampling.max_frames for truth in truths.values())
    for _ in range((1 + num_yields) * (num_prompt_rows + num_frames) + 1):
        if scheduler.num_streams:
            step()
    step()
    assert scheduler.num_streams == 0
    assert not scheduler.next_step().has_rows
    scheduler.check_conservation()

    for truth in truths.values():
        assert truth.end is not None, "every open is answered"
        assert truth.end.end.num_frames == len(truth.codes)
        codes, reason = expected_codes(CHECKPOINT, truth.command, truth.text)
        if truth.end.end.reason is FinishReason.CANCELLED:
            assert truth.is_cancelled
            assert truth.codes == codes.tolist()[: len(truth.codes)]
        else:
            assert (truth.codes, truth.end.end.reason) == (codes.tolist(), reason)

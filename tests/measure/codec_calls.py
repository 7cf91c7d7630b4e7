"""Counts the calls of the codec under a load, by simulation: `python -m tests.measure.codec_calls`.

The batcher is the real one, on a clock of its own. The talker makes a frame of every stream with credit per step; a
call of the codec takes a fixed time, and some more for each frame of each row. A call of urgent chunks beside it slows
it down. Streams have 39 to 99 frames.

A speaker takes all audio at once and begins again when a stream ends. A listener is sent audio in messages, at most a
lead ahead of what was played; credit is for 12 frames more than was sent, in lumps of 8. Times are in milliseconds:
those of a step, what a listener has at least to play when a chunk comes, and from the first frame to its audio.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from sonorant.engine.code2wav.schedule.batcher import Batcher
from sonorant.engine.code2wav.schedule.plan import DecodePlan
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import BeginStream, EndStream, FlushStream, FrameBatch, PcmBatch, PcmRecord
from sonorant.engine.types import FinishReason, StreamEnd
from tests.fakes import CONTEXT, FakeClock, published_checkpoint

FRAME_S = 0.08
PASS_SIZES = (1, 2, 4, 8, 12)
CALL_S, ROW_FRAME_S = 1.35e-3, 0.03e-3
URGENT_S, SLOWED_S = 2.5e-3, 0.7e-3  # a call of urgent chunks, and what the one beside it takes longer
SIMULATED_S, SETTLED_S = 24.0, 6.0
AHEAD_FRAMES, LUMP_FRAMES = 12, 8
LOADS = [  # streams, step of the talker, lead and frames of a message; without a lead they are speakers
    (1, 0.003, 0.0, 0),
    (16, 0.0045, 0.0, 0),
    (64, 0.0065, 0.0, 0),
    (64, 0.004, 0.0, 0),
    (1000, 0.02, 2.0, 12),
    (1000, 0.02, 0.4, 2),
    (2000, 0.038, 2.0, 12),
    (2000, 0.038, 0.4, 2),
]


@dataclass
class Listener:
    num_frames: int
    allowed: int
    made: int = 0
    received: int = 0
    is_over: bool = False
    first_made_s: float = 0.0
    plays_s: float = 0.0  # since when, had there been no gap


@dataclass
class Counts:
    calls: Counter[int] = field(default_factory=Counter)  # by frames of a row
    urgent: int = 0
    rows: int = 0
    chunks: int = 0
    records: int = 0
    busy_s: float = 0.0
    leads_s: list[float] = field(default_factory=list)  # when a chunk came, except the first
    firsts_s: list[float] = field(default_factory=list)  # from the first frame to its audio


class Load:
    def __init__(self, num_streams: int, step_s: float, lead_s: float, message_frames: int) -> None:
        config = EngineConfig.of(published_checkpoint().folder, num_slots=num_streams, max_decode_batch=128)
        self.clock = FakeClock()
        self.batcher = Batcher(config, num_streams, FRAME_S, CONTEXT, PASS_SIZES, self.clock)
        self.counts = Counts()
        self._step_s, self._lead_s, self._message_frames = step_s, lead_s, message_frames
        self._random = random.Random(1)
        self._listeners: dict[int, Listener] = {}
        self._next_id = 1
        span_s = 69 * (FRAME_S if lead_s else step_s)
        self._starts = [self.clock.now_s + self._random.random() * span_s for _ in range(num_streams)]
        self._settled_s = self.clock.now_s + SETTLED_S

    def run(self) -> None:
        stop_s = self.clock.now_s + SIMULATED_S
        step_s, call_s = self.clock.now_s, float("inf")
        records = list[BeginStream | FrameBatch | FlushStream | EndStream]()
        plan: DecodePlan | None = None
        urgent: DecodePlan | None = None
        urgent_s = float("inf")
        while self.clock.now_s < stop_s:
            over_s = call_s if urgent is None else urgent_s  # the loop waits for an urgent call
            self.clock.now_s = max(self.clock.now_s, min(step_s, over_s))
            if urgent is not None and urgent_s <= self.clock.now_s:
                self._finish(urgent)
                urgent, urgent_s = None, float("inf")
            if plan is not None and urgent is None and call_s <= self.clock.now_s:
                self._finish(plan)
                plan = None
            if step_s <= self.clock.now_s:
                records += self._step()
                step_s += self._step_s
            if plan is None:
                plan, call_s = self._next_call(records)
                records.clear()
            elif urgent is None:
                for record in records:
                    self.batcher.on_record(record)
                records.clear()
                urgent = self.batcher.urgent_batch()
                self._take(urgent.records)
                if urgent.slots:
                    self.counts.urgent += self._is_settled
                    urgent_s, call_s = self.clock.now_s + URGENT_S, call_s + SLOWED_S
                else:
                    urgent = None

    def _finish(self, plan: DecodePlan) -> None:
        self._take(self.batcher.apply(plan, np.ones(plan.codes.shape[:2], np.int16)))

    def _next_call(
        self, records: list[BeginStream | FrameBatch | FlushStream | EndStream]
    ) -> tuple[DecodePlan | None, float]:
        """The next call and when it ends; without one, when to ask again."""
        for record in records:
            self.batcher.on_record(record)
        plan = self.batcher.next_batch()
        self._take(plan.records)
        if not plan.slots:
            wait_s = self.batcher.wait_s
            return None, float("inf") if wait_s is None else self.clock.now_s + wait_s + 1e-6
        took_s = CALL_S + ROW_FRAME_S * plan.codes.shape[0] * plan.codes.shape[1]
        if self._is_settled:
            self.counts.calls[plan.codes.shape[1]] += 1
            self.counts.rows += len(plan.slots)
            self.counts.busy_s += took_s
        return plan, self.clock.now_s + took_s

    def _step(self) -> Iterator[BeginStream | FrameBatch | FlushStream | EndStream]:
        """What the talker sends at the end of a step."""
        now_s, ends, flushes = self.clock.now_s, list[EndStream](), list[FlushStream]()
        stepped: dict[int, int] = {}
        for stream_id, each in self._listeners.items():
            self._grant(each)
            if each.made == each.num_frames and not each.is_over:
                each.is_over = True
                ends.append(EndStream(stream_id, StreamEnd(FinishReason.COMPLETED, each.made, 0.0, 0.0)))
            elif each.made < min(each.allowed, each.num_frames):
                each.first_made_s = each.first_made_s or now_s
                stepped[stream_id] = each.made
                each.made += 1
                if each.made == each.allowed:
                    flushes.append(FlushStream(stream_id, is_blocked=True))
        for start_s in [start_s for start_s in self._starts if start_s <= now_s]:
            self._starts.remove(start_s)
            self._listeners[self._next_id] = Listener(
                self._random.randint(39, 99), AHEAD_FRAMES if self._lead_s else 48
            )
            yield BeginStream(self._next_id, now_s, now_s)
            self._next_id += 1
        if stepped:
            ids, indices = np.array(list(stepped), np.int64), np.array(list(stepped.values()), np.int32)
            yield FrameBatch(ids, indices, np.zeros((len(ids), 1), np.int16), now_s - self._step_s, now_s)
        yield from flushes
        yield from ends

    def _grant(self, listener: Listener) -> None:
        sent = listener.received
        if self._lead_s:
            playable = (self.clock.now_s - listener.plays_s + self._lead_s) / FRAME_S if listener.plays_s else 0.0
            sent = min(sent, int(playable) // self._message_frames * self._message_frames)
        ahead = AHEAD_FRAMES if self._lead_s else 48
        if sent + ahead - listener.allowed >= LUMP_FRAMES:
            listener.allowed = sent + ahead

    def _take(self, records: list[PcmRecord]) -> None:
        now_s = self.clock.now_s
        for record in records:
            if isinstance(record, EndStream):
                each = self._listeners.pop(record.stream_id)
                self._starts.append(each.plays_s + each.received * FRAME_S if self._lead_s else now_s)
            elif isinstance(record, PcmBatch):
                self.counts.records += self._is_settled
                self.counts.chunks += len(record.stream_ids) * self._is_settled
                for stream_id in record.stream_ids.tolist():
                    self._hear(self._listeners[stream_id], record.num_frames)

    def _hear(self, listener: Listener, num_frames: int) -> None:
        now_s = self.clock.now_s
        first, lead_s = not listener.received, listener.plays_s + listener.received * FRAME_S - now_s
        if self._is_settled:
            (self.counts.firsts_s if first else self.counts.leads_s).append(
                now_s - listener.first_made_s if first else lead_s
            )
        if first or lead_s < 0:
            listener.plays_s = now_s - listener.received * FRAME_S
        listener.received += num_frames

    @property
    def _is_settled(self) -> bool:
        return self.clock.now_s >= self._settled_s


COLUMNS = "{:>7} {:>6} {:>5} {:>8} {:>8} {:>6} {:>5} {:>9} {:>10} {:>10} {:>10} {:>7}  {}"
TITLES = "streams|step|lead|calls/s|urgent/s|rows|busy|chunks/s|records/s|least lead|first p50|p95|calls by frames"


def main() -> None:
    print(COLUMNS.format(*TITLES.split("|")))
    for num_streams, step_s, lead_s, message_frames in LOADS:
        load = Load(num_streams, step_s, lead_s, message_frames)
        load.run()
        counts, span_s = load.counts, SIMULATED_S - SETTLED_S
        num_calls = counts.calls.total()
        first_s, late_s = np.percentile(counts.firsts_s, [50, 95])
        values = (
            num_streams,
            f"{1e3 * step_s:.1f}",
            lead_s,
            f"{num_calls / span_s:.0f}",
            f"{counts.urgent / span_s:.0f}",
            f"{counts.rows / num_calls:.1f}",
            f"{counts.busy_s / span_s:.0%}",
            f"{counts.chunks / span_s:.0f}",
            f"{counts.records / span_s:.0f}",
            f"{1e3 * min(counts.leads_s):.0f}",
            f"{1e3 * first_s:.1f}",
            f"{1e3 * late_s:.1f}",
            ", ".join(f"{size}: {count}" for size, count in sorted(counts.calls.items())),
        )
        print(COLUMNS.format(*values))


if __name__ == "__main__":
    main()

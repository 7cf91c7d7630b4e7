"""Measures how long a hop over a ring takes between two real processes: `python -m sonorant.engine.ipc.bench`.

A hop goes from `publish` in one process to the decoded record in the other, timed by the clock they share. "Alone"
sends one record at a time, so the reader has to be woken; "at once" sends as fast as the ring takes records.
"""

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np

from sonorant.engine.ipc.channel import PeerGone, RingInbox, RingOutbox
from sonorant.engine.ipc.child import Child
from sonorant.engine.ipc.doorbell import Doorbell
from sonorant.engine.ipc.messages import FrameBatch, PcmBatch, encode
from sonorant.engine.ipc.ring import Ring, record_bytes

CODEBOOKS, FRAME_SAMPLES = 16, 1920  # of the published codec
RING_RECORDS = 64
Batch = FrameBatch | PcmBatch


@dataclass(frozen=True, slots=True)
class Hop:
    num_bytes: int  # of a record in the ring
    p50_us: float
    p99_us: float
    records_per_s: float


def main() -> None:
    args = _parser().parse_args()
    print(
        f"{'record':12} {'rows':>5} {'bytes':>8} {'alone p50 us':>13} {'p99':>6} {'at once, records/s':>19} {'GB/s':>6}"
    )
    for name, batch_of in (("codec frames", frames), ("PCM", pcm)):
        for rows in args.rows:
            hop = measure(batch_of(rows), args.records)
            print(
                f"{name:12} {rows:5} {hop.num_bytes:8} {hop.p50_us:13.0f} {hop.p99_us:6.0f} {hop.records_per_s:19.0f} "
                f"{hop.records_per_s * hop.num_bytes / 1e9:6.2f}",
                flush=True,
            )


def frames(rows: int) -> FrameBatch:
    """The record of a talker step: one frame of each stream."""
    codes = np.zeros((rows, CODEBOOKS), np.int16)
    return FrameBatch(np.zeros(rows, np.int64), np.zeros(rows, np.int32), codes, began_s=0.0, ended_s=0.0)


def pcm(rows: int) -> PcmBatch:
    """The record of a Code2Wav call: one frame's samples of each stream."""
    samples = np.zeros((rows, FRAME_SAMPLES), np.int16)
    return PcmBatch(
        np.zeros(rows, np.int64), np.zeros(rows, np.int32), 1, samples, np.zeros((rows, 1, CODEBOOKS), np.int16)
    )


def measure(batch: Batch, num_records: int, pause_s: float = 0.001) -> Hop:
    """Measure hops of `num_records` records sent alone, then of as many sent at once."""
    num_bytes = record_bytes(sum(len(part) for part in encode(batch)))
    with _reader(num_bytes * RING_RECORDS) as (outbox, told):
        for _ in range(num_records):
            time.sleep(pause_s)
            _publish(outbox, batch)
        alone_ns = [arrived_ns - sent_ns for sent_ns, arrived_ns in _times(told, num_records)]
        for _ in range(num_records):
            _publish(outbox, batch)
        at_once = _times(told, num_records)
    ordered = sorted(alone_ns)
    took_ns = at_once[-1][1] - at_once[0][0]
    return Hop(
        num_bytes=num_bytes,
        p50_us=statistics.median(ordered) / 1e3,
        p99_us=ordered[int(len(ordered) * 0.99)] / 1e3,
        records_per_s=num_records / took_ns * 1e9,
    )


def _publish(outbox: RingOutbox[Batch], batch: Batch) -> None:
    batch.stream_ids[0] = time.monotonic_ns()
    outbox.publish([batch])


def _times(told: Connection, count: int) -> list[tuple[int, int]]:
    """Return when each record was published and when it was read, in ns."""
    times: list[tuple[int, int]] = []
    while len(times) < count:
        times += told.recv()
    return times


def read(inbox: RingInbox[Batch], told: Connection) -> None:
    """Entry of the reading process: reports the times of what it read whenever there is nothing more to read."""
    told.send(None)
    times: list[tuple[int, int]] = []
    try:
        while True:
            inbox.wait(0.05 if times else None)
            records = inbox.drain()
            now_ns = time.monotonic_ns()
            times += [(int(record.stream_ids[0]), now_ns) for record in records]
            if not records:
                told.send(times)
                times = []
    except PeerGone:
        pass


@contextmanager
def _reader(ring_bytes: int) -> Iterator[tuple[RingOutbox[Batch], Connection]]:
    with ExitStack() as stack:
        ring = stack.enter_context(closing(Ring(ring_bytes)))
        ours, theirs = Doorbell.pair()
        stack.enter_context(closing(ours))
        inbox: RingInbox[Batch] = RingInbox(ring, theirs)
        with closing(theirs):
            child = stack.enter_context(closing(Child.spawn("reader", read, (inbox,), (inbox,))))
        child.ready.recv()
        yield RingOutbox(ring, ours), child.ready


def _parser() -> argparse.ArgumentParser:
    def numbers(text: str) -> Sequence[int]:
        return [int(number) for number in text.split(",")]

    parser = argparse.ArgumentParser(prog="python -m sonorant.engine.ipc.bench", description=__doc__)
    parser.add_argument("--rows", type=numbers, default=[1, 64, 256], help="streams per record (default: 1,64,256)")
    parser.add_argument("--records", type=int, default=2000, help="per line (default: 2000)")
    return parser


if __name__ == "__main__":
    from sonorant.engine.ipc import bench  # by its real name, not as __main__, so that the other process can unpickle

    bench.main()

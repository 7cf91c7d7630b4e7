"""Sizes of the rings between the processes, which have room for everything that may be in flight at once."""

from dataclasses import dataclass

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import (
    BeginStream,
    EndServer,
    EndStream,
    FirstChunk,
    FlushStream,
    FrameBatch,
    OpenStream,
    PcmBatch,
    Record,
    RecordShape,
    SilentStream,
    TextPositions,
    max_bytes,
)
from sonorant.engine.ipc.ring import record_bytes
from sonorant.engine.ipc.server_ids import MAX_SERVERS


@dataclass(frozen=True, slots=True)
class RingSizes:
    """Bytes of ring B, and of each server process's rings A and C. Any server process may have all the streams.

    Frames: no stream is further ahead than its credit, so rings B and C hold at most `credit_frames` of each stream,
    live or stored; in the worst case each frame is a record of its own. Every ring has room for at least two of its
    largest records.

    Ring A: the server process keeps the commands that do not fit, so its size need not bound what callers send. Ring B
    has room for four of the longest past codes. If more streams begin at the same moment, as happens when all streams
    of a dead pair continue here, the talker waits for Code2Wav. Code2Wav never waits for the talker, and never long for
    the server process, which reads whatever comes.
    """

    commands: int
    frames: int
    pcm: int

    @classmethod
    def of(cls, config: EngineConfig, checkpoint: Checkpoint) -> "RingSizes":
        shape = RecordShape(
            codebooks=checkpoint.talker.num_codebooks,
            frame_samples=checkpoint.codec.frame_samples,
            hidden_size=checkpoint.talker.stack.hidden_size,
            max_context=config.talker.max_context,
        )

        def room(kind: type[Record], **batch: int) -> int:
            return record_bytes(max_bytes(kind, shape, **batch))

        streams = config.max_streams + config.code2wav.stored_streams
        frames = streams * config.talker.credit_frames
        batch = room(PcmBatch, rows=config.code2wav.max_decode_batch, num_frames=config.talker.credit_frames)
        ends = streams * room(EndStream) + MAX_SERVERS * room(EndServer)
        return cls(
            commands=4 * room(OpenStream) + 64 * 1024,
            frames=frames * (room(FrameBatch) + room(TextPositions) + room(FlushStream))
            + ends
            + streams * room(BeginStream, num_frames=0)
            + 4 * room(BeginStream, num_frames=config.talker.max_context),
            pcm=max(
                frames * (room(PcmBatch) + room(TextPositions))
                + streams * (room(FirstChunk) + room(SilentStream))
                + ends,
                2 * batch,
            ),
        )

"""Computes the sizes that settings leave open (AUTO) from the GPU and the checkpoint's shapes, and from measured step
times how many listeners can be served. Pure."""

from collections.abc import Mapping

from sonorant.engine.card.card import GIB, Card
from sonorant.engine.checkpoint.config import Checkpoint, TransformerConfig
from sonorant.engine.config import EngineConfig
from sonorant.settings import AUTO

CPU_SLOTS = 32
SMALLEST_CARD_SLOTS, LARGEST_CARD_SLOTS = 8, 2048
MAX_CPU_DECODE_BATCH, MAX_CARD_DECODE_BATCH = 32, 128  # the codec is no faster with more rows than that
LEAST_KEPT_REFERENCES = 16
CPU_PASS_FRAMES = 96
LEAST_PASS_FRAMES, PASS_FRAMES_PER_SLOT, MOST_PASS_FRAMES = 128, 4, 1024  # on a card, in float16
HALF_ITEMSIZE = 2  # bytes of a float16
CPU_PREFILL_ROWS, CARD_PREFILL_ROWS = 256, 1024
MANY_SLOTS = 512  # a card for so many computes CARD_PREFILL_ROWS prompt rows in a few milliseconds

TYPICAL_POSITIONS = 256  # KV positions that a typical stream needs: a prompt and 16 s of speech
STATE_SHARE = 0.6  # share of the memory beside the weights that is for the streams' state
STANDBY_STATE_SHARE = 0.8  # of the typical state of all slots, which a pair beside a standby must have room for
WORKERS_BYTES = 4 * GIB  # contexts, libraries, graphs and activations of a pair with many slots
LEAST_WORKERS_BYTES = 3.5 * GIB  # the same with few slots, with the codec's weights
ENCODER_BYTES = 2 * GIB  # those of an encoder of recordings, with its weights

# The share of a frame's duration that the workers may spend on making it; the rest is for prompts, first chunks and
# chance.
USABLE_TIME = 0.7
# Most weights that a frame reads of a small model. With more, products take most of the time on a CPU.
MOST_WEIGHTS = 64_000_000


def allowed_bytes(card: Card, gpu_memory_gib: float) -> int:
    """Return how much of a card's memory the server may take: what is free, and no more than it was allowed (0: all
    of it)."""
    return min(card.free_bytes, int(gpu_memory_gib * GIB)) if gpu_memory_gib else card.free_bytes


def missing_bytes(memory_bytes: int, checkpoint: Checkpoint, config: EngineConfig) -> int:
    """Return how much memory a pair lacks to start at all and to speak the longest stream; 0 if it has enough."""
    longest = 2 * config.talker.max_context * checkpoint.talker.stack.kv_values
    needed = _weights_bytes(checkpoint) + LEAST_WORKERS_BYTES + longest + _encoder_bytes(checkpoint)
    return max(0, int(needed) - memory_bytes)


def with_sizes(config: EngineConfig, card_slots: int | None) -> EngineConfig:
    """Return `config` with a number for every AUTO. `card_slots` comes from `slots_of`; None on the CPU."""
    talker = config.talker
    slots = _chosen(talker.num_slots, CPU_SLOTS if card_slots is None else card_slots)
    most = MAX_CPU_DECODE_BATCH if card_slots is None else MAX_CARD_DECODE_BATCH
    prefill_rows = CPU_PREFILL_ROWS if card_slots is None or slots < MANY_SLOTS else CARD_PREFILL_ROWS
    return config.but(
        num_slots=slots,
        max_queued_streams=_chosen(talker.max_queued_streams, slots if card_slots is None else slots // 2),
        max_prefill_rows=_chosen(talker.max_prefill_rows, prefill_rows),
        kept_references=_chosen(config.code2wav.kept_references, max(LEAST_KEPT_REFERENCES, slots // 4)),
        max_decode_batch=_chosen(config.code2wav.max_decode_batch, min(most, slots)),
    )


def max_pass_frames(device_type: str, num_slots: int, itemsize: int) -> int:
    """Return how many frames of all rows together a pass of the codec may have, which bounds the memory of its
    activations: some 5 MB per frame in the published size. On a card, graphs keep what the largest pass takes, so a
    card with few slots has smaller ones, and numbers of 4 bytes (`itemsize`) have passes of half as many frames."""
    if device_type == "cpu":
        return CPU_PASS_FRAMES
    return max(LEAST_PASS_FRAMES, min(MOST_PASS_FRAMES, PASS_FRAMES_PER_SLOT * num_slots)) * HALF_ITEMSIZE // itemsize


def _chosen(asked: int, found: int) -> int:
    return found if asked == AUTO else asked


def slots_of(memory_bytes: int, checkpoint: Checkpoint) -> int:
    """Return how many streams a pair has room for that may take so much of a card's memory: a power of two."""
    affordable = int(max(0, _state_bytes(memory_bytes, checkpoint)) * STATE_SHARE) // _stream_bytes(checkpoint)
    power = 1 << max(affordable, 1).bit_length() - 1
    return max(SMALLEST_CARD_SLOTS, min(LARGEST_CARD_SLOTS, power))


def holds_standby(memory_bytes: int, checkpoint: Checkpoint, num_slots: int) -> bool:
    """Whether two pairs that share the memory evenly have room for the state of so many streams each. On average a
    stream is half done, so a bit less than the state of whole ones is enough."""
    state = num_slots * _stream_bytes(checkpoint)
    return _state_bytes(memory_bytes // 2, checkpoint) >= STANDBY_STATE_SHARE * state


def _state_bytes(memory_bytes: int, checkpoint: Checkpoint) -> int:
    """What a pair that may take so much memory has left for the state of streams; below 0 if it has too little."""
    return int(memory_bytes - _weights_bytes(checkpoint) - WORKERS_BYTES - _encoder_bytes(checkpoint))


def _encoder_bytes(checkpoint: Checkpoint) -> int:
    return ENCODER_BYTES if checkpoint.speaker_encoder is not None else 0


def _stream_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of a stream: keys and values of the talker, and of the codec's window in float32. The rest is small."""
    codec = checkpoint.codec.decoder
    talker = 2 * TYPICAL_POSITIONS * checkpoint.talker.stack.kv_values
    return talker + 4 * codec.sliding_window * codec.stack.kv_values


def _weights_bytes(checkpoint: Checkpoint) -> int:
    talker = checkpoint.talker
    tables = talker.text_vocab_size * talker.text_hidden_size + 2 * talker.vocab_size * talker.stack.hidden_size
    return 2 * (_layer_values(talker.stack) + _layer_values(checkpoint.code_predictor.stack) + tables)


def frame_weights(checkpoint: Checkpoint) -> int:
    """How many weights of talker and code predictor a frame reads, each as often as it does."""
    predictor = checkpoint.code_predictor
    later = _layer_values(predictor.stack) + predictor.vocab_size * checkpoint.talker.stack.hidden_size
    return _layer_values(checkpoint.talker.stack) + (checkpoint.talker.num_codebooks - 1) * later


def _layer_values(stack: TransformerConfig) -> int:
    """How many weights all layers of a stack have."""
    attention = 2 * (stack.num_heads + stack.num_kv_heads) * stack.head_dim
    return stack.num_layers * stack.hidden_size * (attention + 3 * stack.intermediate_size)


def real_time_factor(step_s: Mapping[int, float], codec_s: float, frame_s: float, *, in_turns: bool) -> float:
    """Return the seconds of work for a second of speech of one stream; the arguments are those of `listeners`."""
    return _work_s(step_s[min(step_s)], codec_s, in_turns) / frame_s


def listeners(step_s: Mapping[int, float], codec_s: float, frame_s: float, *, in_turns: bool = True) -> int:
    """Return how many streams can be served at once without gaps, when each needs a frame per `frame_s`.

    `step_s` is the duration of a talker step by its number of rows, interpolated linearly. `codec_s` is the time per
    frame and stream in full calls of Code2Wav. With `in_turns` both share one GPU, or the same cores, so their times
    add up. A step with fewer rows cannot take longer than one with more: where it seems to, the measurement was
    disturbed, and the shorter time counts. With more rows than were measured, each is taken to need as much time as
    with the most that were, which is too much rather than too little.
    """
    usable_s = USABLE_TIME * frame_s
    before, before_s = 0, 0.0
    for rows in sorted(step_s):
        total_s = _work_s(min(step_s[more] for more in step_s if more >= rows), rows * codec_s, in_turns)
        if total_s > usable_s:
            share = (usable_s - before_s) / (total_s - before_s)
            return max(1, before + int((rows - before) * share))
        before, before_s = rows, total_s
    return max(1, int(before * usable_s / before_s))


def _work_s(talker_s: float, codec_s: float, in_turns: bool) -> float:
    return talker_s + codec_s if in_turns else max(talker_s, codec_s)

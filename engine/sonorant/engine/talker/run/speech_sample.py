"""Has the checkpoint speak a sample, to find its alignment head and to compare the codec's number formats."""

from collections.abc import Callable, Sequence

import numpy as np

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import SAMPLE_STREAM, FrameBatch
from sonorant.engine.prompt.layout import PromptLayout
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.talker.schedule.rows import BROKEN, DecodeRow, PrefillRow
from sonorant.engine.types import Float32Array, Int16Array, PromptPlan, SynthesisParams

TEXT = "The old man walked slowly along the river."
NUM_FRAMES = 32
NUM_FRAMES_OF_ALL = 64  # enough to speak all of the text

Step = Callable[[Sequence[PrefillRow], Sequence[DecodeRow]], Int16Array]  # of a runner


def speech_sample(step: Step, checkpoint: Checkpoint, config: EngineConfig) -> FrameBatch:
    """Make NUM_FRAMES frames of speech: one row per frame, all of SAMPLE_STREAM. Nothing of it stays in the runner."""
    codes = _speak(step, checkpoint, config, _plan(checkpoint, config, whole_text=False), NUM_FRAMES, ends=False)
    codes = np.clip(codes, 0, checkpoint.code_predictor.vocab_size - 1)
    streams, indices = np.full(NUM_FRAMES, SAMPLE_STREAM, np.int64), np.arange(NUM_FRAMES, dtype=np.int32)
    return FrameBatch(streams, indices, codes, began_s=0.0, ended_s=0.0)


def whole_sample(
    step: Step, checkpoint: Checkpoint, config: EngineConfig, num_positions: int
) -> tuple[PromptPlan, Int16Array] | None:
    """Return a prompt with the whole text, and the codes [frames, codebooks] of its speech up to the end.

    Returns None if that needs more than `num_positions`, which a stream may have.
    """
    plan = _plan(checkpoint, config, whole_text=True)
    if plan.num_rows + NUM_FRAMES_OF_ALL > num_positions:
        return None
    codes = _speak(step, checkpoint, config, plan, NUM_FRAMES_OF_ALL, ends=True)
    is_over = (codes[:, 0] == checkpoint.talker.codec_eos_id) | (codes[:, 0] == BROKEN)
    return plan, codes[: is_over.argmax()] if is_over.any() else codes


def _plan(checkpoint: Checkpoint, config: EngineConfig, *, whole_text: bool) -> PromptPlan:
    speaker = next(iter(checkpoint.talker.speaker_ids), None)
    x_vector = _x_vector(checkpoint)
    params = SynthesisParams(
        checkpoint.default_sampling, speaker=speaker, x_vector=x_vector, non_streaming_mode=whole_text
    )
    tokenizer = Tokenizer.load(config.model, checkpoint.characters, in_words=checkpoint.in_words)
    plan = PromptLayout(params, checkpoint, tokenizer).plan(tokenizer.encode(TEXT), ended=True)
    assert plan is not None
    return plan


def _x_vector(checkpoint: Checkpoint) -> Float32Array | None:
    return np.zeros(checkpoint.talker.stack.hidden_size, np.float32) if checkpoint.task == "base" else None


def _speak(
    step: Step, checkpoint: Checkpoint, config: EngineConfig, plan: PromptPlan, num_frames: int, *, ends: bool
) -> Int16Array:
    """Make up to `num_frames` frames of a stream. `ends`: stop after the model's end token, which is the last frame."""
    pages = tuple(range(config.talker.pages_for(plan.num_rows + num_frames)))
    sampling, end = checkpoint.default_sampling, checkpoint.talker.codec_eos_id
    row = PrefillRow(0, pages, plan, 0, plan.num_rows, sampling, _x_vector(checkpoint), None, allow_eos=False)
    frames = [step([row], [])]
    for frame in range(1, num_frames):
        if ends and frames[-1][0, 0] == end:
            break
        text_id = plan.trailing[frame - 1] if frame <= len(plan.trailing) else checkpoint.text_ids.tts_pad
        frames.append(step([], [DecodeRow(0, text_id, plan.num_rows - 1 + frame, frame, ends)]))
    return np.concatenate(frames)

"""Some speech of the checkpoint's own, as codes: what the codec process compares its number formats by."""

import numpy as np

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import SAMPLE_STREAM, FrameBatch
from sonorant.engine.prompt.layout import PromptAssembler
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.talker.rows import DecodeRow, PrefillRow
from sonorant.engine.talker.runner import TalkerRunner
from sonorant.engine.types import SynthesisParams

TEXT = "The old man walked slowly along the river."
NUM_FRAMES = 32


def speech_sample(runner: TalkerRunner, checkpoint: Checkpoint, config: EngineConfig) -> FrameBatch:
    """One row per frame, all of SAMPLE_STREAM. Nothing of it stays in the runner."""
    speaker = next(iter(checkpoint.talker.speaker_ids), None)
    x_vector = np.zeros(checkpoint.talker.stack.hidden_size, np.float32) if checkpoint.task == "base" else None
    params = SynthesisParams(checkpoint.default_sampling, speaker=speaker, x_vector=x_vector)
    tokenizer = Tokenizer.load(config.model)
    prompt = PromptAssembler(params, checkpoint, tokenizer)
    prompt.push_text(tokenizer.encode(TEXT))
    prompt.end_text()
    plan = prompt.plan()
    assert plan is not None
    pages = tuple(range(-(-(plan.num_rows + NUM_FRAMES) // config.talker.page_size)))
    row = PrefillRow(0, pages, plan, 0, plan.num_rows, params.sampling, x_vector, None, allow_eos=False)
    frames = [runner.step([row], [])]
    for frame in range(1, NUM_FRAMES):
        text_id = plan.trailing[frame - 1] if frame <= len(plan.trailing) else checkpoint.text_ids.tts_pad
        frames.append(runner.step([], [DecodeRow(0, text_id, plan.num_rows - 1 + frame, frame, False)]))
    codes = np.clip(np.concatenate(frames), 0, checkpoint.code_predictor.vocab_size - 1)
    streams, indices = np.full(NUM_FRAMES, SAMPLE_STREAM, np.int64), np.arange(NUM_FRAMES, dtype=np.int32)
    return FrameBatch(streams, indices, codes, began_s=0.0, ended_s=0.0)

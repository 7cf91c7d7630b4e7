"""How often a stream that goes on behind known frames says what it would have said without the break.

    python -m tests.measure.break_points [--model M] [--device cuda] [--dtype bfloat16] [--load-format dummy]

Every break point from 1 to --frames, both layouts, greedy and sampled; four frames behind each are compared, and
whether the first of them is the same.
"""

import argparse
import dataclasses
import itertools

import numpy as np
import torch

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR, resolve_model
from sonorant.engine.config import EngineConfig
from sonorant.engine.talker.run.runner import TalkerRunner
from tests.engine.talker.driver import prepare
from tests.engine.talker.schedule._support import Setup, make

TEXT = "The quick brown fox jumps over the lazy dog and speaks slowly of the world today."


def main() -> None:
    args = _parser().parse_args()
    folder = resolve_model(args.model) if args.model else BUILTIN_VOICE_DIR
    checkpoint = load_checkpoint(folder)
    config = EngineConfig.of(
        folder,
        talker_device=args.device,
        dtype=args.dtype,
        load_format=args.load_format,
        num_slots=64,
        max_context=512,
    )
    torch.set_num_threads(1)
    setup = Setup(checkpoint, config, TalkerRunner(checkpoint, config))
    none = np.empty((0, checkpoint.talker.num_codebooks), np.int16)
    for whole_text, is_sampled in itertools.product((False, True), repeat=2):
        sampling = dataclasses.replace(
            checkpoint.default_sampling,
            do_sample=is_sampled,
            subtalker_do_sample=is_sampled,
            seed=5,
            ignore_eos=True,
        )
        voice = {"speaker": next(iter(checkpoint.talker.speaker_ids))}
        utterance = prepare(checkpoint, TEXT, sampling, 0, non_streaming_mode=whole_text, **voice)
        (whole,) = make(setup, utterance, [none], [args.frames + 4])
        (again,) = make(setup, utterance, [none], [args.frames + 4])
        breaks = range(1, args.frames + 1)
        on = make(setup, utterance, [whole[:n] for n in breaks], [n + 4 for n in breaks])
        num_first = sum(np.array_equal(codes[0], whole[n]) for n, codes in zip(breaks, on, strict=True))
        num_four = sum(np.array_equal(codes, whole[n : n + 4]) for n, codes in zip(breaks, on, strict=True))
        print(
            f"{'text first' if whole_text else 'streaming':10} {'sampled' if is_sampled else 'greedy':8} "
            f"of {args.frames}: next frame equal {num_first}, next four {num_four}; "
            f"undisturbed runs equal: {np.array_equal(whole, again)}",
            flush=True,
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.break_points", description=__doc__)
    parser.add_argument("--model", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--load-format", default="safetensors")
    parser.add_argument("--frames", type=int, default=120)
    return parser


if __name__ == "__main__":
    main()

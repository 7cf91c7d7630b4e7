"""`python -m sonorant.training`: trains a small voice from scratch, in the published checkpoint layout."""

import argparse
import logging
import os
import time
from pathlib import Path
from typing import get_args

import torch

from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR
from sonorant.training.pipeline import DEFAULT_STAGES, LOG_FORMAT, Run, Stage, run_stages
from sonorant.training.settings import FULL, FULL_BASE, TOY, TOY_BASE

GPU_PROCESSES = 3  # of Kokoro, which one process leaves half idle
KINDS = {"custom_voice": (FULL, TOY), "base": (FULL_BASE, TOY_BASE)}


def main() -> None:
    stages = get_args(Stage)
    parser = argparse.ArgumentParser(prog="python -m sonorant.training", description=__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the run; a run that was stopped continues from it"
    )
    parser.add_argument(
        "--kind",
        choices=tuple(KINDS),
        default="custom_voice",
        help="type of the checkpoint: with voices of its own, or for cloning (default: %(default)s)",
    )
    parser.add_argument(
        "--stages",
        default=",".join(DEFAULT_STAGES),
        help="comma-separated (default: %(default)s); a stage works on what earlier ones left in the folder, and "
        "beside those named with it; `decoder` trains the decoder of --codec-from further, `hearing` a checkpoint that "
        "clones, on how its speech sounds beside the references",
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="time for all stages (default: %(default)s)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--processes", type=int, help="processes that the teacher uses (default: all cores but three; 3 on a GPU)"
    )
    parser.add_argument(
        "--codec-from",
        type=Path,
        default=BUILTIN_VOICE_DIR,
        help="checkpoint whose codec is used if the folder has none and none is trained (default: the built-in one)",
    )
    parser.add_argument(
        "--weights-from",
        type=Path,
        help="checkpoint of the same sizes whose weights training begins with; only its decoder may be wider",
    )
    parser.add_argument(
        "--rate", type=float, default=1.0, help="learning rates of encoder and talker as a share of the settings'"
    )
    parser.add_argument("--toy", action="store_true", help="tiny sizes: all stages in seconds, on a CPU")
    parser.add_argument("--eager", action="store_true", help="no compilation, no CUDA graphs: for debugging")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chosen = args.stages.split(",")
    if unknown := set(chosen) - set(stages):
        parser.error(f"unknown stages: {', '.join(sorted(unknown))}")
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    if "hearing" in chosen and (args.kind != "base" or {"codec", "decoder", "talker"} & set(chosen)):
        parser.error("hearing trains what a run of --kind base has left: name it without codec, decoder and talker")
    settings = KINDS[args.kind][args.toy]
    own = GPU_PROCESSES if settings.teacher == "kokoro" else max(1, (os.cpu_count() or 2) - 3)
    run_stages(
        Run(
            folder=args.out,
            settings=settings,
            stages=chosen,
            device=torch.device(args.device),
            ends_at_s=time.time() + args.minutes * 60,
            teacher_processes=args.processes or own,
            codec_from=args.weights_from or args.codec_from,
            weights_from=args.weights_from,
            rate=args.rate,
            seed=args.seed,
            eager=args.eager,
        )
    )


if __name__ == "__main__":
    main()

"""What rounding loses, on an included voice: `python -m tests.measure.rounded_quality`.

The talker with rounded weights beside the one with its own, greedily: whether it prefers the same codes given the same
history, and after how many frames it says something else by itself. Code2Wav with rounded weights beside float32: dB.

With --keep it only speaks the everyday sentences, with everything in the checkpoint's own precision and with everything
rounded, into folders which `python -m sonorant.training.evaluation.judge` judges.
"""

import argparse
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import soundfile
import torch

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR
from sonorant.engine.code2wav.run.runner import Code2WavRunner
from sonorant.engine.code2wav.schedule.formats import agreement_db
from sonorant.engine.config import EngineConfig
from sonorant.engine.cpu.codec_weights import FLOATS, WHOLES
from sonorant.engine.model.rounded import ROUNDINGS
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.engine.talker.schedule.rows import DecodeRow, PrefillRow
from sonorant.engine.types import Int16Array
from sonorant.training.evaluation.sentences import everyday_sentences
from tests.engine.talker.driver import Utterance, prepare

TEXTS = (
    "Good morning, how are you today?",
    "The train to the coast leaves at nine from the second platform.",
    "Please call me back when you have found the book that I left on your table.",
    "It rained all night, but the sun came out before we had finished breakfast.",
    "Nobody expected that so many people would come to hear the old songs again.",
    "She opened the window, looked down the empty street, and closed it without a word.",
)
MOST_FRAMES = 120
PAGES = tuple(range(16))


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.rounded_quality", description=__doc__)
    parser.add_argument("--voice", default="linden")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="speak everyday sentences into folders below it")
    args = parser.parse_args()
    checkpoint = load_checkpoint(BUILTIN_VOICE_DIR)
    if args.keep:
        for weights in ("auto", *ROUNDINGS):
            keep(checkpoint, args.voice, weights, args.keep / weights)
    else:
        compare(checkpoint, args.voice)


def compare(checkpoint: Checkpoint, voice: str) -> None:
    utterances = _utterances(checkpoint, voice, TEXTS)
    own = _runner(checkpoint, "auto")
    said = [np.array(list(_frames(own, checkpoint, each))) for each in utterances]
    print(f"{voice}, {sum(map(len, said))} frames of {len(TEXTS)} sentences, greedy")
    for name in ROUNDINGS:
        rounded = _runner(checkpoint, name)
        told = [np.array(list(_frames(rounded, checkpoint, each, own))) for each in utterances]
        first = [one[: len(other), 0] == other[: len(one), 0] for one, other in zip(told, said, strict=True)]
        every = [one[: len(other)] == other[: len(one)] for one, other in zip(told, said, strict=True)]
        alone = [np.array(list(_frames(rounded, checkpoint, each))) for each in utterances]
        apart = [_first_difference(one, other) for one, other in zip(alone, said, strict=True)]
        print(
            f"{name}: first code equal given the same history {np.concatenate(first).mean():.1%}, all codes "
            f"{np.concatenate(every).mean():.1%}; by itself it differs from frame {apart} of {[len(s) for s in said]}; "
            f"its sentences have {[len(s) for s in alone]} frames"
        )
    coarse, fine = _codec(checkpoint, rounded=True), _codec(checkpoint, rounded=False)
    print("Code2Wav, dB:", [round(agreement_db(coarse.speak(codes), fine.speak(codes)), 1) for codes in said])


def keep(checkpoint: Checkpoint, voice: str, weights: str, folder: Path) -> None:
    """Speak with such weights; if they are rounded, Code2Wav has rounded ones, too."""
    folder.mkdir(parents=True)
    runner, codec = _runner(checkpoint, weights), _codec(checkpoint, rounded=weights != "auto")
    reports = []
    for number, text in enumerate(everyday_sentences()):
        (utterance,) = _utterances(checkpoint, voice, [text])
        samples = codec.speak(np.array(list(_frames(runner, checkpoint, utterance))))
        soundfile.write(folder / f"{number:05d}.wav", samples.clip(-1, 1), checkpoint.codec.output_sample_rate)
        reports.append(json.dumps({"number": number, "voice": voice, "text": text}))
    (folder / "report.jsonl").write_text("\n".join(reports) + "\n", encoding="utf-8")


def _utterances(checkpoint: Checkpoint, voice: str, texts: Sequence[str]) -> list[Utterance]:
    sampling = dataclasses.replace(checkpoint.default_sampling, do_sample=False, subtalker_do_sample=False)
    return [prepare(checkpoint, text, sampling, MOST_FRAMES, speaker=voice) for text in texts]


def _runner(checkpoint: Checkpoint, weights: str) -> TalkerRunner:
    settings = {"talker_weights": weights, "num_slots": 1, "num_pages": len(PAGES), "max_context": 16 * len(PAGES)}
    return TalkerRunner(checkpoint, EngineConfig.of(checkpoint.folder, talker_device="cpu", **settings))


def _codec(checkpoint: Checkpoint, *, rounded: bool) -> Code2WavRunner:
    config = EngineConfig.of(checkpoint.folder, code2wav_device="cpu", code2wav_dtype="float32", num_slots=1)
    with mock.patch("sonorant.engine.code2wav.run.loading.conversion_of", lambda _: WHOLES if rounded else FLOATS):
        return Code2WavRunner(checkpoint, config, float_output=True)


def _frames(
    runner: TalkerRunner, checkpoint: Checkpoint, utterance: Utterance, leader: TalkerRunner | None = None
) -> Iterator[Int16Array]:
    """Yield frames up to the end token. With a `leader`, each frame follows those of the leader."""
    plan, spoken = utterance.plan, [runner] if leader is None else [runner, leader]
    text_ids = [*plan.trailing, *[checkpoint.text_ids.tts_pad] * MOST_FRAMES]
    for number in range(MOST_FRAMES):
        prompt, row = [], []
        if number == 0:
            prompt = [PrefillRow(0, PAGES, plan, 0, plan.num_rows, utterance.sampling, None, None, allow_eos=False)]
        else:
            row = [DecodeRow(0, text_ids[number - 1], plan.num_rows + number - 1, number, allow_eos=number > 1)]
        codes = [each.step(prompt, row)[0] for each in spoken]
        if codes[-1][0] == checkpoint.talker.codec_eos_id:
            return
        yield codes[0]
        if leader is not None:
            runner._slots.last_frame.copy_(leader._slots.last_frame)
            runner._slots.seen.copy_(leader._slots.seen)


def _first_difference(one: Int16Array, other: Int16Array) -> int:
    """The number of the first frame whose first codes differ."""
    both = min(len(one), len(other))
    return int(np.argmax(np.append(one[:both, 0] != other[:both, 0], True)))


if __name__ == "__main__":
    main()

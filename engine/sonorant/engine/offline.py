"""Speaks one utterance without a server: `python -m sonorant.engine.offline --text Hello --wav hello.wav`.

`synthesize` does the same from Python. The parts are those of the service (prompt, scheduler, batcher, both runners),
called in turn in one thread; the codes are recorded between the two stages. The result depends only on the arguments.
"""

import argparse
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import soundfile
from tqdm import tqdm

from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR, resolve_model
from sonorant.engine.code2wav.decoding import turn as code2wav_turn
from sonorant.engine.code2wav.run.runner import PCM_SCALE, Code2WavRunner
from sonorant.engine.code2wav.schedule.batcher import Batcher
from sonorant.engine.config import DtypeName, EngineConfig, LoadFormat
from sonorant.engine.encoder.recording import read_recording
from sonorant.engine.encoder.reference import ReferenceEncoder
from sonorant.engine.errors import EngineError, InvalidSynthesis, StreamFailed
from sonorant.engine.ipc.channel import QueueChannel
from sonorant.engine.ipc.messages import EndStream, FrameBatch, FrameRecord, OpenStream, PcmBatch, PcmRecord, Shutdown
from sonorant.engine.prompt.layout import PromptLayout
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.prompt.validation import check_params
from sonorant.engine.talker.run.runner import TalkerRunner
from sonorant.engine.talker.schedule.scheduler import Scheduler
from sonorant.engine.talker.stepping import Stepping
from sonorant.engine.types import (
    FinishReason,
    Float32Array,
    Int16Array,
    PromptPlan,
    SamplingParams,
    StreamEnd,
    SynthesisParams,
)

log = logging.getLogger(__name__)

STREAM_ID = 1
CHUNK_FRAMES = 12
_OUTPUTS = ("codes", "wav", "wav_float", "speaker_embedding_out")  # all other arguments are those of `synthesize`


@dataclass(frozen=True, slots=True)
class Result:
    codes: Int16Array  # [frames, codebooks]
    samples: Float32Array  # [frames * frame_samples], -1 .. 1
    sample_rate_hz: int
    end: StreamEnd
    x_vector: Float32Array | None  # [hidden], of the reference
    reference_codes: Int16Array | None  # [frames, codebooks], of the reference


def synthesize(
    text: str,
    *,
    model: Path = BUILTIN_VOICE_DIR,
    speaker: str | None = None,
    language: str = "auto",
    instruct: str = "",
    reference: Path | None = None,
    reference_text: str = "",
    x_vector_only: bool = False,
    non_streaming_mode: bool | None = None,
    greedy: bool = False,
    seed: int = 0,
    max_frames: int | None = None,
    load_format: LoadFormat = "safetensors",
    dtype: DtypeName = "auto",
    device: str = "auto",
    on_frames: Callable[[int], object] = lambda num_frames: None,
) -> Result:
    """Speak `text` with a checkpoint folder. Defaults are those of the official package: the checkpoint's own sampling,
    its first speaker, all text in the prompt except for Base. Raises EngineError or a subclass.

    `on_frames` is called with the number of frames after each step. `max_frames` frames are made, unless the model ends
    earlier.
    """
    checkpoint = load_checkpoint(model)
    config = EngineConfig.of(
        model=model,
        load_format=load_format,
        dtype=dtype,
        talker_device=device,
        code2wav_device=device,
        encoder_device=device,
        num_slots=1,
        max_queued_streams=0,
        chunk_ramp=(CHUNK_FRAMES,),
    )
    tokenizer = Tokenizer.load(model, checkpoint.characters, in_words=checkpoint.in_words)
    x_vector = reference_codes = None
    if reference is not None:
        x_vector, reference_codes = _encode_reference(checkpoint, config, reference, x_vector_only)
    if checkpoint.task == "custom_voice" and speaker is None:
        speaker = next(iter(checkpoint.talker.speaker_ids), None)
    params = SynthesisParams(
        sampling=_sampling(checkpoint, seed, greedy, max_frames),
        speaker=speaker,
        language=language,
        instruct=instruct,
        non_streaming_mode=checkpoint.task != "base" if non_streaming_mode is None else non_streaming_mode,
        x_vector=x_vector,
        reference_codes=reference_codes,
        reference_text="" if x_vector_only else reference_text,
    )
    check_params(params, checkpoint)
    if instruct and not checkpoint.takes_instruct:
        log.warning("%s does not follow instructions; --instruct is ignored", checkpoint.name)
    plan = _plan(text, params, checkpoint, tokenizer)
    codes, samples, end = _run(checkpoint, config, params, plan, on_frames)
    return Result(codes, samples, checkpoint.codec.output_sample_rate, end, x_vector, reference_codes)


def _sampling(checkpoint: Checkpoint, seed: int, greedy: bool, max_frames: int | None) -> SamplingParams:
    sampling = replace(checkpoint.default_sampling, seed=seed)
    if greedy:
        sampling = replace(sampling, do_sample=False, subtalker_do_sample=False)
    return sampling if max_frames is None else replace(sampling, max_frames=max_frames)


def _encode_reference(
    checkpoint: Checkpoint, config: EngineConfig, file: Path, x_vector_only: bool
) -> tuple[Float32Array, Int16Array | None]:
    encoder = ReferenceEncoder(checkpoint, config)
    samples = read_recording(file, encoder.sample_rate_hz).samples
    return encoder.x_vector(samples), None if x_vector_only else encoder.codes(samples)


def _plan(text: str, params: SynthesisParams, checkpoint: Checkpoint, tokenizer: Tokenizer) -> PromptPlan:
    prompt = PromptLayout(params, checkpoint, tokenizer)
    plan = prompt.plan(tokenizer.encode(text, prompt.language), ended=True)
    if plan is None:
        raise InvalidSynthesis("text", "the text is empty; give at least one character that is not whitespace")
    return plan


def _run(
    checkpoint: Checkpoint,
    config: EngineConfig,
    params: SynthesisParams,
    plan: PromptPlan,
    on_frames: Callable[[int], object],
) -> tuple[Int16Array, Float32Array, StreamEnd]:
    max_frames = params.sampling.max_frames
    # The user waits for this one utterance and can hear whether it is silent, so silence does not end it.
    config = config.but(max_context=plan.num_rows + max_frames, runaway_silent_frames=0)
    talker, code2wav = TalkerRunner(checkpoint, config), Code2WavRunner(checkpoint, config, float_output=True)
    scheduler = Scheduler(config, checkpoint, talker.num_pages)
    # With a clock that stands still no listener runs out of audio, so Code2Wav waits for whole chunks.
    sizes = code2wav.num_slots, 1 / checkpoint.frame_rate_hz, code2wav.context, code2wav.pass_sizes
    batcher = Batcher(config, *sizes, clock=lambda: 0.0)
    made, decoded = QueueChannel[FrameRecord](), QueueChannel[PcmRecord]()
    stepping = Stepping(made, scheduler, talker)
    codes = [np.empty((0, checkpoint.talker.num_codebooks), np.int16)]
    samples = [np.empty(0, np.float32)]
    voice = params.x_vector, params.reference_codes
    scheduler.on_record(OpenStream(STREAM_ID, plan, params.sampling, max_frames, time.monotonic(), *voice))
    while True:
        num_rows = stepping.turn().num_rows
        for frames in made.drain():
            assert not isinstance(frames, Shutdown)
            if isinstance(frames, FrameBatch):
                codes.append(frames.codes)
                on_frames(len(frames.codes))
            batcher.on_record(frames)
        num_rows += code2wav_turn(decoded, batcher, code2wav).num_rows
        for record in decoded.drain():
            match record:
                case PcmBatch():
                    samples.append(record.samples[0].astype(np.float32, copy=False))
                case EndStream(end=end):
                    if end.reason in (FinishReason.FAILED, FinishReason.NO_SCORES):
                        raise StreamFailed(end.detail)
                    return np.concatenate(codes), np.concatenate(samples), end
        assert num_rows, "nothing to do, and the stream has not ended"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    args = parser.parse_args(arguments)
    outputs = [args.codes, args.wav, args.speaker_embedding_out]
    if not any(outputs):
        parser.error("nothing to write; give --wav, --codes or --speaker-embedding-out")
    for output in filter(None, outputs):
        if not output.parent.is_dir():
            parser.error(f"{output.parent} is not a folder, {output.name} cannot be written there")
    if args.reference and not (args.reference_text or args.x_vector_only):
        parser.error("--reference needs --reference-text (the words spoken in it) or --x-vector-only")
    if args.speaker_embedding_out and not args.reference:
        parser.error("--speaker-embedding-out needs --reference, the recording of the speaker")
    told: dict[str, Any] = {name: value for name, value in vars(args).items() if name not in _OUTPUTS}
    try:
        told["model"] = resolve_model(args.model)
        with tqdm(desc="codec frames", unit="frame", disable=None) as progress:
            result = synthesize(**told, on_frames=progress.update)
        _write(args, result)
    except (EngineError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    seconds = len(result.samples) / result.sample_rate_hz
    print(f"{len(result.codes)} frames, {seconds:.2f} s of audio, {result.end.reason.name.lower()}", file=sys.stderr)
    return 0


def _write(args: argparse.Namespace, result: Result) -> None:
    if args.codes:
        _save_array(args.codes, result.codes)
    if args.speaker_embedding_out and result.x_vector is not None:
        _save_array(args.speaker_embedding_out, result.x_vector)
    if args.wav:
        samples = result.samples if args.wav_float else np.rint(result.samples * PCM_SCALE).astype(np.int16)
        subtype = "FLOAT" if args.wav_float else "PCM_16"
        with args.wav.open("wb") as file:
            soundfile.write(file, samples, result.sample_rate_hz, subtype=subtype, format="WAV")


def _save_array(path: Path, array: Int16Array | Float32Array) -> None:
    with path.open("wb") as file:  # np.save would append .npy to other names
        np.save(file, array)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sonorant.engine.offline",
        description="Speak one text with a Qwen3-TTS 12 Hz checkpoint and write the result to files.",
        epilog="Exit status: 0 if all files are written, 2 if the input or the checkpoint cannot be used.",
    )
    parser.add_argument("--text", required=True, help="what to say")
    parser.add_argument(
        "--model",
        default=str(BUILTIN_VOICE_DIR),
        metavar="DIR",
        help="checkpoint folder in the published layout, or a preset name with --load-format dummy; "
        "default: the built-in voice",
    )
    voice = parser.add_argument_group("voice")
    voice.add_argument("--speaker", metavar="NAME", help="CustomVoice: a speaker's name; default: the first one")
    voice.add_argument("--language", default="auto", metavar="NAME", help="a language's name or tag; default: auto")
    voice.add_argument("--instruct", default="", metavar="TEXT", help="how to say it, or which voice (VoiceDesign)")
    voice.add_argument("--reference", type=Path, metavar="AUDIO", help="Base: a recording of the voice to clone")
    voice.add_argument("--reference-text", default="", metavar="TEXT", help="the words spoken in the recording")
    voice.add_argument(
        "--x-vector-only", action="store_true", help="clone by the speaker embedding alone; --reference-text is ignored"
    )
    generation = parser.add_argument_group("generation")
    layout = generation.add_mutually_exclusive_group()
    layout.add_argument(
        "--non-streaming-mode",
        action="store_true",
        default=None,
        help="put all text into the prompt; the default, except for Base",
    )
    layout.add_argument(
        "--streaming-mode",
        dest="non_streaming_mode",
        action="store_false",
        help="feed one text token per codec frame; the default for Base",
    )
    generation.add_argument("--greedy", action="store_true", help="take the likeliest code at each step")
    generation.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the sampling; default: 0")
    generation.add_argument(
        "--max-frames", type=int, metavar="N", help="most codec frames to make; default: the checkpoint's"
    )
    machine = parser.add_argument_group("machine")
    machine.add_argument(
        "--load-format", choices=get_args(LoadFormat), default="safetensors", help="dummy: random weights"
    )
    machine.add_argument("--dtype", choices=get_args(DtypeName), default="auto", help="auto: float32 on a CPU")
    machine.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda:0, ...")
    output = parser.add_argument_group("output")
    output.add_argument("--wav", type=Path, metavar="FILE", help="the audio, 16 bit mono")
    output.add_argument("--wav-float", action="store_true", help="write --wav as 32 bit float")
    output.add_argument("--codes", type=Path, metavar="FILE", help="the codec frames, NumPy int16 [frames, codebooks]")
    output.add_argument(
        "--speaker-embedding-out",
        type=Path,
        metavar="FILE",
        help="speaker embedding of --reference, NumPy float32 [hidden]",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())

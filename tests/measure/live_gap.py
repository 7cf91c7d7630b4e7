"""What live streams notice of recordings that are being encoded: `python -m tests.measure.live_gap`.

Each stream asks for one frame every 80 ms, as a listener in real time does, and the table says how long after the
asking the frame is there. Beside that, one recording after another is encoded: by nobody, by the engine's encoder
process, or, as it would be without one, by a thread of the process that the streams are served from, or by its event
loop itself. Weights are random; without --model the talker has the shape of the built-in voice, and the encoders have
the published one.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import uvloop

from sonorant.engine import BUILTIN_VOICE_DIR, EngineConfig, PcmChunk, SynthesisParams, resolve_model
from sonorant.engine.encoder.recording import read_upload
from sonorant.engine.model.reference import ReferenceEncoder
from tests.engine.encoder.recordings import audio_file, noise
from tests.engine.one_engine import OwnedEngine, start_engine

FRAME_S = 0.08
TEXT = "Every word of this is spoken while somebody else uploads a recording. " * 4
Encode = Callable[[], Awaitable[object]]


async def main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = resolve_model(arguments.model) if arguments.model else write_checkpoint(Path(folder))
        config = EngineConfig.of(
            model=model,
            load_format="dummy",
            max_context=1024,
            encoder_device=arguments.encoder_device,
            encoder_threads=arguments.encoder_threads,
            num_slots=arguments.streams,
        )
        recording = audio_file(noise(arguments.recording_s))
        cores = len(os.sched_getaffinity(0))
        print(f"{model.name}: {arguments.streams} streams, recordings of {arguments.recording_s:g} s, {cores} cores")
        print("| recordings are encoded by | s each | frame there after ms: p50 | p95 | p99 | longest |")
        print("|---|---|---|---|---|---|")
        for by in arguments.by:
            engine = await start_engine(config)
            try:
                encode = WAYS[by](engine, config, recording)
                if encode is not None:
                    await encode()  # loads what it needs
                encodes_s, delays_ms = await measure(engine, encode, arguments.streams, arguments.frames)
            finally:
                await engine.close()
            each = f"{np.mean(encodes_s):.2f}" if encodes_s else "-"
            figures = " | ".join(f"{np.percentile(delays_ms, p):.1f}" for p in (50, 95, 99, 100))
            print(f"| {by} | {each} | {figures} |", flush=True)


def by_nobody(engine: OwnedEngine, config: EngineConfig, recording: bytes) -> None:
    return None


def by_process(engine: OwnedEngine, config: EngineConfig, recording: bytes) -> Encode:
    return lambda: engine.encode_reference(recording, with_codes=True)


def by_thread(engine: OwnedEngine, config: EngineConfig, recording: bytes) -> Encode:
    encode = in_this_process(config, recording)
    return lambda: asyncio.to_thread(encode)


def by_event_loop(engine: OwnedEngine, config: EngineConfig, recording: bytes) -> Encode:
    encode = in_this_process(config, recording)

    async def blocking() -> None:
        encode()

    return blocking


WAYS = {
    "nobody": by_nobody,
    "process": by_process,
    "thread": by_thread,
    "event-loop": by_event_loop,
}


def in_this_process(config: EngineConfig, recording: bytes) -> Callable[[], object]:
    import torch

    torch.set_num_threads(config.threads("encoder"))
    from sonorant.engine.checkpoint.config import load_checkpoint

    encoder = ReferenceEncoder(load_checkpoint(config.model), config)

    def encode() -> object:
        samples = read_upload(recording, encoder.sample_rate_hz).samples
        return encoder.x_vector(samples), encoder.codes(samples)

    return encode


async def measure(
    engine: OwnedEngine, encode: Encode | None, num_streams: int, num_frames: int
) -> tuple[list[float], list[float]]:
    """Seconds per recording, and milliseconds from the asking for each frame to its arrival."""
    encodes_s: list[float] = []
    delays_ms: list[float] = []

    async def upload() -> None:
        while encode is not None:
            begin_s = time.monotonic()
            await encode()
            encodes_s.append(time.monotonic() - begin_s)
            await asyncio.sleep(0)

    async def listen(offset_s: float) -> None:
        sampling = replace(engine.info.default_sampling, max_frames=num_frames, ignore_eos=True)
        params = SynthesisParams(sampling, x_vector=np.zeros(engine.info.hidden_size, np.float32))
        await asyncio.sleep(offset_s)
        async with engine.open(params, credit_frames=1) as stream:
            stream.push_text(TEXT)
            stream.end_text()
            await stream.next_event()
            due_s = time.monotonic()
            for _ in range(num_frames - 1):
                due_s += FRAME_S
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                stream.grant(1)
                assert isinstance(await stream.next_event(), PcmChunk)
                delays_ms.append(1000 * (time.monotonic() - due_s))

    uploads = asyncio.create_task(upload())
    await asyncio.gather(*(listen(FRAME_S * n / num_streams) for n in range(num_streams)))
    uploads.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await uploads
    return encodes_s, delays_ms


def write_checkpoint(folder: Path) -> Path:
    """The built-in voice's JSON files, as of a Base checkpoint, with the published encoders."""
    published = resolve_model("qwen3-tts-12hz-1.7b-base")
    for name in ("generation_config.json", "vocab.json", "merges.txt", "tokenizer_config.json"):
        shutil.copy(BUILTIN_VOICE_DIR / name, folder)
    config = json.loads((BUILTIN_VOICE_DIR / "config.json").read_text())
    talker = config["talker_config"]
    config |= {
        "tts_model_type": "base",
        "talker_config": talker | {"spk_id": {}, "spk_is_dialect": {}},
        "speaker_encoder_config": {"enc_dim": talker["hidden_size"], "sample_rate": 24000},
    }
    (folder / "config.json").write_text(json.dumps(config))
    codec = json.loads((BUILTIN_VOICE_DIR / "speech_tokenizer/config.json").read_text())
    encoder = json.loads((published / "speech_tokenizer/config.json").read_text())["encoder_config"]
    codec |= {
        "encoder_config": encoder | {"codebook_size": codec["decoder_config"]["codebook_size"]},
        "encoder_valid_num_quantizers": talker["num_code_groups"],
    }
    (folder / "speech_tokenizer").mkdir()
    (folder / "speech_tokenizer/config.json").write_text(json.dumps(codec))
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a preset of a Base checkpoint, such as qwen3-tts-12hz-1.7b-base")
    parser.add_argument("--by", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--frames", type=int, default=250, help="per stream")
    parser.add_argument("--recording-s", type=float, default=10.0)
    parser.add_argument("--encoder-device", default="cpu")
    parser.add_argument("--encoder-threads", type=int, default=0)
    uvloop.run(main(parser.parse_args()))

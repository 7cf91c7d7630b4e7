"""Encodes a recording for voice cloning: to a speaker embedding and to codec frames. Base checkpoints only.

Owns both encoders, which are loaded when they are first needed; on the CPU compiled functions run them. Encode once per
voice, and outside the loops that serve streams: a recording would hold them up. One recording at a time: one of a few
seconds keeps a GPU busy, and what speaks there gets its turn between two of them.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.cpu import encoder as compiled_codec
from sonorant.engine.cpu import speaker as compiled_speaker
from sonorant.engine.cpu.encoder import CompiledCodecEncoder
from sonorant.engine.cpu.library import library
from sonorant.engine.cpu.speaker import CompiledSpeakerEncoder
from sonorant.engine.cuda import captured, compute_dtype, find_device
from sonorant.engine.errors import InvalidSynthesis, UnsupportedTask
from sonorant.engine.model.codec.codec_encoder import CodecEncoder
from sonorant.engine.model.mel import HOP_SAMPLES, PADDING_SAMPLES, MelSpectrogram
from sonorant.engine.model.speaker_encoder import SpeakerEncoder
from sonorant.engine.model.weights import TensorFile, init_random, load_module
from sonorant.engine.types import Float32Array, Int16Array

FIELD = "reference"
USUAL_SECONDS = (*range(1, 17), 20, 25, 30)  # a recording is filled up to the next of these lengths on a GPU


class ReferenceEncoder:
    def __init__(self, checkpoint: Checkpoint, config: EngineConfig) -> None:
        if checkpoint.speaker_encoder is None:
            raise UnsupportedTask(
                FIELD, f"{checkpoint.name} cannot clone a voice; leave the reference out or load a Base checkpoint"
            )
        self._checkpoint = checkpoint
        self._config = config
        self._speaker = checkpoint.speaker_encoder
        self._device = find_device(config.encoder_device)
        self._mel = MelSpectrogram(self._speaker.sample_rate, self._speaker.mel_dim, self._device)
        self._codec_lengths: _Lengths | None = None
        self._speaker_lengths: _Lengths | None = None

    @property
    def sample_rate_hz(self) -> int:
        return self._checkpoint.codec.input_sample_rate

    @property
    def is_compiled(self) -> bool:
        """Whether compiled functions run both encoders, which are then loaded."""
        is_speaker = isinstance(self._speaker_encoder, CompiledSpeakerEncoder)
        return is_speaker and isinstance(self._codec_encoder, CompiledCodecEncoder)

    def load(self) -> None:
        """Load both encoders now, instead of when they are first needed. Raises CheckpointError."""
        _ = self._speaker_encoder, self._codec_encoder

    def prepare(self, seconds: Sequence[float] = USUAL_SECONDS) -> None:
        """Load both encoders, and run them once for each of these lengths: on a GPU, to capture CUDA graphs of them,
        unless the settings want none. From now on, recordings are filled up to the next length, but not for compiled
        functions, which take all lengths alike. Raises CheckpointError.
        """
        codec, frame = self._codec_encoder, self._checkpoint.codec.encode_frame_samples
        with_graphs = self._device.type == "cuda" and not self._config.enforce_eager
        sizes = sorted({-(-round(each * self.sample_rate_hz) // frame) * frame for each in seconds})
        if isinstance(codec, CodecEncoder):
            self._codec_lengths = _Lengths(
                sizes, self._device, _dtype(codec.downsample.conv), lambda x, length: codec.encode(x[None], length)[0]
            )
            self._codec_lengths.run_all(with_graphs=with_graphs)
        if isinstance(self._speaker_encoder, SpeakerEncoder):
            self._speaker_lengths = _Lengths(sizes, self._device, torch.float32, self._embedding)
            self._speaker_lengths.run_all(with_graphs=with_graphs)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()  # of the runs before the captures

    @torch.inference_mode()
    def encode(self, samples: Float32Array, *, with_codes: bool) -> tuple[Float32Array, Int16Array | None]:
        """Return what `x_vector` and, `with_codes`, `codes` return. On a GPU both are computed side by side."""
        values = self._checked(samples)
        codes = self._start_codes(values) if with_codes else None
        x_vector = self._start_x_vector(values)
        return _downloaded_x_vector(x_vector), None if codes is None else _downloaded_codes(codes)

    @torch.inference_mode()
    def x_vector(self, samples: Float32Array) -> Float32Array:
        """Return the speaker embedding [hidden] of mono samples at `sample_rate_hz`.

        Raises InvalidSynthesis if the recording is too short.
        """
        return _downloaded_x_vector(self._start_x_vector(self._checked(samples)))

    @torch.inference_mode()
    def codes(self, samples: Float32Array) -> Int16Array:
        """Return the codec frames [frames, codebooks] of mono samples at `sample_rate_hz`, an incomplete last frame
        included."""
        return _downloaded_codes(self._start_codes(torch.from_numpy(samples).to(self._device)))

    def _checked(self, samples: Float32Array) -> Tensor:
        """Return the samples on the device. Raises InvalidSynthesis if the recording is too short for a speaker."""
        min_samples = max(self._speaker_encoder.min_frames * HOP_SAMPLES, PADDING_SAMPLES + 1)
        if len(samples) < min_samples:
            raise InvalidSynthesis(
                FIELD,
                f"the reference recording lasts {len(samples) / self.sample_rate_hz:.3f} s; the speaker encoder needs "
                f"at least {min_samples / self.sample_rate_hz:.3f} s; record a few seconds for a good voice",
            )
        return torch.from_numpy(samples).to(self._device)

    def _start_x_vector(self, values: Tensor) -> "_Started":
        if (lengths := self._speaker_lengths) is not None and lengths.has(len(values)):
            return lengths.start(values)
        return _Started(self._embedding(values))

    def _start_codes(self, values: Tensor) -> "_Started":
        encoder = self._codec_encoder
        if (lengths := self._codec_lengths) is not None and lengths.has(len(values)):
            started = lengths.start(values)
            return _Started(started.outputs[: -(-len(values) // encoder.frame_samples)], started.stream)
        return _Started(encoder(values))

    def _embedding(self, x: Tensor, length: Tensor | None = None) -> Tensor:
        """x [num_samples] float32 -> [hidden]. `length` [1]: only so many samples are the recording's."""
        encoder = self._speaker_encoder
        if isinstance(encoder, CompiledSpeakerEncoder):
            return encoder(self._mel(x))
        mel = self._mel(x, length).to(_dtype(encoder.fc))
        embedding: Tensor = encoder(mel[None], None if length is None else length // HOP_SAMPLES)[0]
        return embedding

    @cached_property
    def _speaker_encoder(self) -> SpeakerEncoder | CompiledSpeakerEncoder:
        with torch.device("meta"):
            encoder = SpeakerEncoder(self._speaker)
        dtype = compute_dtype(self._config.dtype, self._checkpoint.dtype, self._device)
        self._load(encoder, "model.safetensors", "speaker_encoder.", dtype)
        functions = self._functions(dtype)
        has_compiled = functions is not None and compiled_speaker.fits(self._speaker)
        return CompiledSpeakerEncoder(functions, encoder) if has_compiled else encoder

    @cached_property
    def _codec_encoder(self) -> CodecEncoder | CompiledCodecEncoder:
        with torch.device("meta"):
            encoder = CodecEncoder(self._checkpoint.codec)
        dtype = compute_dtype(self._config.dtype, "float32", self._device)
        self._load(encoder, "speech_tokenizer/model.safetensors", "encoder.", dtype)
        functions = self._functions(dtype)
        has_compiled = functions is not None and compiled_codec.fits(encoder)
        return CompiledCodecEncoder(functions, encoder) if has_compiled else encoder

    def _functions(self, dtype: torch.dtype) -> Any | None:
        """Return the compiled functions if they can compute here."""
        return library() if self._device.type == "cpu" and dtype == torch.float32 else None

    def _load(self, module: torch.nn.Module, file_name: str, prefix: str, dtype: torch.dtype) -> None:
        if self._config.load_format == "dummy":
            init_random(module, self._device, dtype, self._config.seed)
        else:
            load_module(module, TensorFile(self._checkpoint.folder / file_name), prefix, self._device, dtype)


@dataclass(frozen=True, slots=True)
class _Graph:
    graph: torch.cuda.CUDAGraph
    outputs: Tensor


@dataclass(frozen=True, slots=True)
class _Started:
    """What a stream of the GPU is computing; without a stream, the current one, or nothing any more."""

    outputs: Tensor
    stream: "torch.cuda.Stream | None" = None

    def result(self) -> Tensor:
        """Return the outputs for use on the current stream."""
        if self.stream is not None:
            torch.cuda.current_stream(self.outputs.device).wait_stream(self.stream)
        return self.outputs


class _Lengths:
    """A function of one recording that runs only with a few lengths. What fills a recording up to the next one changes
    nothing of the result, and as the shapes are few, a recording has the same result whatever came before it. On a GPU
    it has a stream, and graphs with memory, of its own, so that another such function can run beside it."""

    def __init__(
        self,
        sizes: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
        function: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        """`function`: of x [size] and the length [1] of the recording in it."""
        self._sizes = sizes
        self._function = function
        self._input = torch.zeros(sizes[-1], device=device, dtype=dtype)
        self._length = torch.ones(1, device=device, dtype=torch.int64)
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._graphs: dict[int, _Graph] = {}

    def has(self, length: int) -> bool:
        return length <= self._sizes[-1]

    @torch.inference_mode()
    def run_all(self, *, with_graphs: bool) -> None:
        """Run with each size, the largest first, and capture that if there are to be graphs; these share memory."""
        pool = torch.cuda.graph_pool_handle() if with_graphs else None
        for size in reversed(self._sizes):
            self._length.fill_(size)
            if pool is None:
                self._run(size)
            else:
                graph = captured(lambda size=size: self._run(size), pool, self._stream)  # type: ignore[misc]
                self._graphs[size] = _Graph(*graph)

    def start(self, x: Tensor) -> _Started:
        """Start with x [length], which is on the device. The result lasts until the next start."""
        if self._stream is None:
            return _Started(self._filled(x))
        self._stream.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(self._stream):
            return _Started(self._filled(x), self._stream)

    def _filled(self, x: Tensor) -> Tensor:
        size = self._sizes[bisect_left(self._sizes, len(x))]
        self._input[: len(x)].copy_(x)
        self._input[len(x) : size].zero_()
        self._length.fill_(len(x))
        if (graph := self._graphs.get(size)) is None:
            return self._run(size)
        graph.graph.replay()
        return graph.outputs

    def _run(self, size: int) -> Tensor:
        return self._function(self._input[:size], self._length)


def _downloaded_x_vector(started: _Started) -> Float32Array:
    x_vector: Float32Array = started.result().float().cpu().numpy()
    return x_vector


def _downloaded_codes(started: _Started) -> Int16Array:
    codes: Int16Array = started.result().to(torch.int16).cpu().numpy()
    return codes


def _dtype(module: torch.nn.Conv1d) -> torch.dtype:
    return module.weight.dtype

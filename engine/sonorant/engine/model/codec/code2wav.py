"""The codec decoder: codes in, samples out, any number of frames at a time.

Owns the network. Modules hold weights only, and a stream's past is in a `CodecState`, so one decoder serves every
stream; it knows slots and not streams. Attribute names are the checkpoint's tensor names. Between layers, x is
[rows, channels, positions].
Source: QwenLM/Qwen3-TTS qwen_tts/core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py.

Why streaming is exact: every layer is causal, and each sees a fixed span of its past. A convolution of kernel k and
dilation d needs its last (k - 1) * d inputs, a transposed one of kernel 2r and stride r its last input step, attention
its last (window - 1) keys and values. With these kept per stream (zero at the start, where the network would have seen
zero padding), feeding frames one by one or all at once is the same computation.

For frames that nobody hears, `remember` updates the state without making samples. After the transformer, each layer
then computes only the last few positions, those from which the states of later layers follow; `reach` says how many.
`attend` leaves these layers to the frames after it. Counted over all layers, this gives the number of frames on which
the state depends: `receptive_frames`, 580 in the published size.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonorant.engine.checkpoint.config import CodecDecoderConfig
from sonorant.engine.model.codec.code2wav_state import CodecState, Tail, TailLayout
from sonorant.engine.model.codec.code2wav_transformer import TransformerLayer, WindowTransformer

RESIDUAL_DILATIONS = (1, 3, 9)
KERNEL = 7  # kernel size of all convolutions but pre_conv and the 1x1 ones
DAMPING_GAIN = 0.2  # factor for random weights of convolutions
SNAKE_EPS = 1e-9
CODEBOOK_EPS = 1e-5

# In the checkpoint, but not used in decoding.
UNUSED_TENSORS = ("quantizer.rvq_first.input_proj.weight", "quantizer.rvq_rest.input_proj.weight")


class CausalConv(nn.Module):
    """Convolution that sees only its past; output length = input length."""

    def __init__(
        self, tails: TailLayout, in_channels: int, out_channels: int, kernel: int, dilation: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel, dilation=dilation, groups=groups)
        self.tail = tails.take(in_channels, (kernel - 1) * dilation) if kernel > 1 else None

    def forward(self, x: Tensor, state: CodecState, activation: "SnakeBeta | None" = None) -> Tensor:
        y: Tensor = self.conv(_extended(x, self.tail, state, activation))
        return y

    def reach(self, num_outputs: int) -> int:
        """How many of the last inputs determine the state and the last `num_outputs` outputs."""
        return num_outputs + (0 if self.tail is None else self.tail.length)


class CausalTransposedConv(nn.Module):
    """Upsampling by `stride`. A kernel of `stride` needs no memory, one of twice that remembers one input step.

    Computed as a plain convolution over the one or two input steps that an output depends on, with `stride` outputs
    per step side by side. Nothing overlaps, so nothing has to be cut off or added later.
    """

    def __init__(self, tails: TailLayout, in_channels: int, out_channels: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(in_channels, out_channels, kernel, stride=stride)
        self.stride = stride
        self.tail = tails.take(in_channels, 1) if kernel > stride else None

    def prepare(self) -> None:
        weight, bias = self.conv.weight, self.conv.bias  # [in, out, kernel], [out]
        assert bias is not None
        steps = weight.view(*weight.shape[:2], -1, self.stride)  # [in, out, steps, stride], the newest input first
        self.weight = steps.flip(2).permute(1, 3, 0, 2).flatten(0, 1).contiguous()  # [out * stride, in, steps]
        self.bias = bias.repeat_interleave(self.stride)
        del self.conv

    def forward(self, x: Tensor, state: CodecState, activation: "SnakeBeta | None" = None) -> Tensor:
        y = F.conv1d(_extended(x, self.tail, state, activation), self.weight, self.bias)
        return y.reshape(len(x), -1, self.stride, x.shape[2]).transpose(2, 3).flatten(2)


def _extended(x: Tensor, tail: Tail | None, state: CodecState, activation: "SnakeBeta | None") -> Tensor:
    """Return the input of a convolution: the inputs it remembers, then x, activated. Remembers the last ones of x."""
    if tail is None:
        return x if activation is None else activation(x)
    kept = tail.kept(state)
    extended: Tensor = torch.cat((kept, x), dim=-1) if activation is None else activation(x, kept)
    kept.copy_(extended[..., x.shape[-1] :])
    return extended


class SnakeBeta(nn.Module):
    """x + sin^2(x e^alpha) / e^beta, per channel; the checkpoint stores both as logarithms."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.empty(channels))
        self.beta = nn.Parameter(torch.empty(channels))
        self.kernel: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor] | None = None

    def prepare(self) -> None:
        self.frequency = self.alpha.exp()[:, None]
        self.magnitude = (self.beta.exp() + SNAKE_EPS).reciprocal()[:, None]
        if self.alpha.device.type != "cpu":  # on the meta device kernels are listed for a card
            # Here, because Triton comes with the CUDA builds of torch only.
            from sonorant.engine.kernels.codec.snake import snake_beta

            self.kernel = snake_beta

    def forward(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        """Activate x [rows, channels, n]; `before`, which is already activated, is put in front."""
        if self.kernel is not None:
            return self.kernel(x, self.frequency, self.magnitude, before)
        wave = torch.mul(x, self.frequency).sin_()
        y = torch.addcmul(x, wave.square_(), self.magnitude)
        return y if before is None else torch.cat((before, y), dim=-1)


class ResidualUnit(nn.Module):
    def __init__(self, tails: TailLayout, channels: int, dilation: int) -> None:
        super().__init__()
        self.act1 = SnakeBeta(channels)
        self.conv1 = CausalConv(tails, channels, channels, KERNEL, dilation)
        self.act2 = SnakeBeta(channels)
        self.conv2 = CausalConv(tails, channels, channels, 1)

    def forward(self, x: Tensor, state: CodecState) -> Tensor:
        y = self.conv1(x, state, self.act1)
        z: Tensor = self.conv2(y, state, self.act2)
        return z.add_(x)


class UpsamplingBlock(nn.Module):
    """One step from the latent rate towards the sample rate."""

    def __init__(self, tails: TailLayout, in_channels: int, out_channels: int, rate: int) -> None:
        super().__init__()
        self.rate = rate
        self.block = nn.ModuleList(
            [
                SnakeBeta(in_channels),
                CausalTransposedConv(tails, in_channels, out_channels, 2 * rate, rate),
                *(ResidualUnit(tails, out_channels, dilation) for dilation in RESIDUAL_DILATIONS),
            ]
        )

    def forward(self, x: Tensor, state: CodecState) -> Tensor:
        activation, upsampling, *residual_units = self.block
        x = upsampling(x, state, activation)
        for unit in residual_units:
            x = unit(x, state)
        return x

    def reach(self, num_outputs: int) -> int:
        """See `CausalConv.reach`."""
        num_upsampled = num_outputs + (KERNEL - 1) * sum(RESIDUAL_DILATIONS)
        return -(-num_upsampled // self.rate) + 1


class ConvNeXtBlock(nn.Module):
    def __init__(self, tails: TailLayout, channels: int) -> None:
        super().__init__()
        self.dwconv = CausalConv(tails, channels, channels, KERNEL, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pwconv1 = nn.Linear(channels, 4 * channels)
        self.pwconv2 = nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.empty(channels))

    def prepare(self) -> None:
        self.pwconv2.weight.data.mul_(self.gamma[:, None])
        self.pwconv2.bias.data.mul_(self.gamma)
        del self.gamma

    def forward(self, x: Tensor, state: CodecState) -> Tensor:
        y = self.norm(self.dwconv(x, state).transpose(1, 2))
        y = self.pwconv2(F.gelu(self.pwconv1(y)))
        z: Tensor = x + y.transpose(1, 2)
        return z


class LatentUpsampling(nn.ModuleList):
    """One step from the frame rate to the latent rate. A list, because the checkpoint numbers its two layers."""

    def __init__(self, tails: TailLayout, channels: int, ratio: int) -> None:
        super().__init__(
            [CausalTransposedConv(tails, channels, channels, ratio, ratio), ConvNeXtBlock(tails, channels)]
        )
        self.ratio = ratio

    def forward(self, x: Tensor, state: CodecState) -> Tensor:
        for layer in self:
            x = layer(x, state)
        return x

    def reach(self, num_outputs: int) -> int:
        """See `CausalConv.reach`."""
        return -(-(num_outputs + KERNEL - 1) // self.ratio)


class Codebook(nn.Module):
    def __init__(self, config: CodecDecoderConfig) -> None:
        super().__init__()
        self.cluster_usage = nn.Parameter(torch.empty(config.codebook_size))
        self.embedding_sum = nn.Parameter(torch.empty(config.codebook_size, config.vector_dim))


class CodebookGroup(nn.Module):
    """Codebooks whose vectors are summed and projected together."""

    def __init__(self, config: CodecDecoderConfig, num_books: int) -> None:
        super().__init__()
        books = (nn.ModuleDict({"_codebook": Codebook(config)}) for _ in range(num_books))
        self.vq = nn.ModuleDict({"layers": nn.ModuleList(books)})
        self.output_proj = nn.Conv1d(config.vector_dim, config.codebook_dim, 1, bias=False)

    def vectors(self) -> Tensor:
        """Those of all codes, [books * codes, vector_dim]."""
        books = [module for module in self.modules() if isinstance(module, Codebook)]
        return torch.cat(
            [b.embedding_sum.float() / b.cluster_usage.float().clamp(CODEBOOK_EPS)[:, None] for b in books]
        )

    def projection(self) -> Tensor:  # [codebook_dim, vector_dim]
        return self.output_proj.weight[..., 0].float()


class Quantizer(nn.Module):
    """Codes to latent vectors. The projection is linear, so it is applied once to the tables instead of to each sum."""

    def __init__(self, config: CodecDecoderConfig) -> None:
        super().__init__()
        self.codebook_size = config.codebook_size
        self.rvq_first = CodebookGroup(config, 1)
        self.rvq_rest = CodebookGroup(config, config.num_quantizers - 1)

    def prepare(self) -> None:
        groups, weight = (self.rvq_first, self.rvq_rest), self.rvq_first.output_proj.weight
        parts = [(group.vectors(), group.projection()) for group in groups]
        tables = [vectors @ projection.T for vectors, projection in parts]
        self.table = torch.cat(tables).to(weight.dtype)  # [books * codes, codebook_dim]
        self.first_rows = torch.arange(0, len(self.table), self.codebook_size, device=weight.device)  # [books]
        self.parts = parts if weight.device.type == "cpu" else []  # for the C functions: less to keep than the table
        del self.rvq_first, self.rvq_rest

    def forward(self, codes: Tensor) -> Tensor:  # [rows, frames, books] -> [rows, frames, codebook_dim]
        return F.embedding(codes + self.first_rows, self.table).sum(-2)


class Code2Wav(nn.Module):
    """The whole decoder. Build, load, `prepare()`, then `step`."""

    def __init__(self, config: CodecDecoderConfig) -> None:
        super().__init__()
        tails = TailLayout()
        channels = [config.decoder_dim >> i for i in range(len(config.upsample_rates) + 1)]
        self.config = config
        self.quantizer = Quantizer(config)
        self.pre_conv = CausalConv(tails, config.codebook_dim, config.latent_dim, 3)
        self.pre_transformer = WindowTransformer(config)
        latent = [LatentUpsampling(tails, config.latent_dim, ratio) for ratio in config.upsampling_ratios]
        first = CausalConv(tails, config.latent_dim, config.decoder_dim, KERNEL)
        blocks = [
            UpsamplingBlock(tails, channels[i], channels[i + 1], rate) for i, rate in enumerate(config.upsample_rates)
        ]
        last = CausalConv(tails, channels[-1], 1, KERNEL)
        self.upsample = nn.ModuleList(latent)
        self.decoder = nn.ModuleList([first, *blocks, SnakeBeta(channels[-1]), last])
        self.tail_size = tails.size
        # Between the transformer and the last convolution:
        self._layers: list[LatentUpsampling | CausalConv | UpsamplingBlock] = [*latent, first, *blocks]
        self._reaches = [last.reach(0)]  # of these and of the last convolution
        for layer in reversed(self._layers):
            self._reaches.insert(0, layer.reach(self._reaches[0]))
        self.convolved_frames = self._reaches[0]  # on which the state of the layers after the transformer depends
        num_attended = config.stack.num_layers * (config.sliding_window - 1)
        self.receptive_frames = self.pre_conv.reach(self._reaches[0] + num_attended)

    def prepare(self) -> None:
        """Convert the loaded weights to the form that `step` uses."""
        for module in list(self.modules()):
            if isinstance(module, SnakeBeta | Quantizer | CausalTransposedConv | ConvNeXtBlock | TransformerLayer):
                module.prepare()

    def damp_random_weights(self) -> None:
        """Scale random weights down, as the waveform's layers would amplify each other until all samples clip."""
        for module in self.decoder[:-1].modules():
            if isinstance(module, CausalConv):
                module.conv.weight.data.mul_(DAMPING_GAIN)

    def new_state(self, num_slots: int) -> CodecState:
        weight = self.pre_conv.conv.weight
        return CodecState.zeros(self.config, num_slots, self.tail_size, weight.device, weight.dtype)

    def step(self, codes: Tensor, state: CodecState, slots: Tensor) -> Tensor:
        """Decode the next frames of some slots, each of which may be anywhere in its stream, and update their state.

        codes [rows, frames, codebooks], slots [rows] without repetition -> samples [rows, frames * frame_samples].
        """
        rows = state.gather(slots)
        samples: Tensor = self(codes, rows)
        rows.num_frames.add_(codes.shape[1])
        state.scatter(slots, rows)
        return samples

    def remember(self, codes: Tensor, state: CodecState, slots: Tensor) -> None:
        """Update the state as `step` does, without making samples, with a small part of the work."""
        rows = state.gather(slots)
        x = self._transformed(codes, rows)
        for layer, reach in zip(self._layers, self._reaches, strict=False):
            x = layer(x[..., -reach:].contiguous(), rows)
        activation, last = self.decoder[-2:]
        last(x[..., -self._reaches[-1] :].contiguous(), rows, activation)
        rows.num_frames.add_(codes.shape[1])
        state.scatter(slots, rows)

    def attend(self, codes: Tensor, state: CodecState, slots: Tensor) -> None:
        """Update only the state of the layers up to the transformer, for frames that nobody hears. If at least
        `convolved_frames` frames are decoded next, all of the state is as if these had been decoded, too."""
        rows = state.gather(slots)
        self._transformed(codes, rows)
        rows.num_frames.add_(codes.shape[1])
        state.scatter(slots, rows)

    def forward(self, codes: Tensor, state: CodecState) -> Tensor:
        x = self._transformed(codes, state)
        for layer in self._layers:
            x = layer(x, state)
        activation, last = self.decoder[-2:]
        y: Tensor = last(x, state, activation)
        return y[:, 0].clamp(-1.0, 1.0)

    def _transformed(self, codes: Tensor, state: CodecState) -> Tensor:
        """[rows, frames, codebooks] -> [rows, latent, frames]"""
        x = self.pre_conv(self.quantizer(codes).transpose(1, 2), state)
        y: Tensor = self.pre_transformer(x.transpose(1, 2), state).transpose(1, 2)
        return y

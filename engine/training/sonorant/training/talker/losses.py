"""The talker's losses: first codes, the predictor's codes, where to look in the text, which phones to speak.

The weights are those of the serving modules; only attention differs, as it sees whole packed rows at once. The phone
head is used only in training: through it, a wrong sound has a gradient that does not pass through the codes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.model.layers import DecoderLayer, RotaryTable, Rotation
from sonorant.engine.model.speaker_encoder import SpeakerEncoder
from sonorant.engine.model.talker import Talker
from sonorant.engine.types import X_VECTOR
from sonorant.training.alignment import PHONES_PER_FRAME
from sonorant.training.references import augmented
from sonorant.training.speakers import NUM_TRAITS, VOICE_NAMES
from sonorant.training.talker.rows import END, NOTHING, RowStore
from sonorant.training.teachers.speech import PHONES

GUIDED_LAYERS = (1, 3)  # layers whose first head learns to look at the text being spoken
IGNORED = -100
MASKED = -1e4
# Gains of initial weights: log-mels are large, and the embeddings in the rows beside the x-vector are small.
ENCODER_GAINS = {"speaker_encoder.blocks.0.conv.weight": 0.3, "speaker_encoder.fc.weight": 0.1}
MEAN_LOG_MEL = -6.5

Block = Callable[
    [DecoderLayer, Tensor, Tensor, Tensor, int, Tensor | None, float, Tensor | None], tuple[Tensor, Tensor | None]
]


@dataclass(frozen=True, slots=True)
class Regularization:
    dropout: float
    corrupted: float  # share of the history's frames in which codes are replaced by those of frames elsewhere
    own_frames: int  # frames of the history, per batch, that are replaced by the model's own
    predictor_frames: int  # frames per batch on which the predictor is trained; 0 = all
    augmented_references: bool = True  # whether references are changed as by other rooms and microphones


@dataclass(frozen=True, slots=True)
class DeviceBatch:
    index: Tensor  # [rows, length]; see packing.Batch
    segment: Tensor
    tail_start: Tensor
    voice: Tensor
    references: Tensor  # [references]


@dataclass(frozen=True, slots=True)
class Losses:
    first: Tensor  # cross-entropy of code 0
    predictor: Tensor  # cross-entropy of the other codes, all books together
    guide: Tensor
    phones: Tensor
    traits: Tensor  # of the x-vectors: squared error of pitch, formants and pace, cross-entropy of the teacher's voice
    drift: Tensor  # divergence from the anchor's codes, summed over the books
    num_frames: Tensor  # frames that are targets
    first_hits: Tensor  # [positions] bool
    predictor_hits: Tensor  # [frames, codebooks - 1] bool


@dataclass(frozen=True, slots=True)
class Anchor:
    """A talker as it was before it learns more languages: in those that it spoke, it must go on as it would have."""

    model: "TrainedTalker"
    languages: Tensor  # [languages.LANGUAGES] bool: those that it spoke


class TrainedTalker(nn.Module):
    """The talker and the modules that are used only in training."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__()
        self.talker = Talker(checkpoint)
        self.phone_head = nn.Linear(checkpoint.talker.stack.hidden_size, PHONES_PER_FRAME * len(PHONES))
        self.speaker_encoder: SpeakerEncoder | None = None
        if checkpoint.speaker_encoder:
            self.speaker_encoder = SpeakerEncoder(checkpoint.speaker_encoder)
            self.trait_head = nn.Linear(checkpoint.talker.stack.hidden_size, NUM_TRAITS + len(VOICE_NAMES))
        self.config = checkpoint.talker
        self.predictor_config = checkpoint.code_predictor


def initialize(model: TrainedTalker, seed: int) -> None:
    """Draw small normal weights, smaller ones where a layer adds to the residual, so that a deep stack is almost the
    identity at first. The speaker encoder has no normalization: its layers keep the size of activations."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 3:
            gain = ENCODER_GAINS.get(name, 1.0)
            std = gain * (2 / (parameter.shape[1] * parameter.shape[2])) ** 0.5
            nn.init.normal_(parameter, std=std, generator=generator)
            continue
        if parameter.ndim == 1:
            nn.init.constant_(parameter, 0.0 if name.endswith("bias") else 1.0)
            continue
        stack = model.predictor_config.stack if "code_predictor" in name else model.config.stack
        adds = name.endswith(("o_proj.weight", "down_proj.weight"))
        nn.init.normal_(parameter, std=0.04 / (2 * stack.num_layers) ** 0.5 if adds else 0.04, generator=generator)
    if model.speaker_encoder is not None:
        first = model.speaker_encoder.get_parameter("blocks.0.conv.weight").detach()
        model.speaker_encoder.get_parameter("blocks.0.conv.bias").detach().copy_(-MEAN_LOG_MEL * first.sum((1, 2)))


def load_talker(model: TrainedTalker, tensors: Mapping[str, Tensor]) -> None:
    """Load talker and speaker encoder of a checkpoint; the modules that are used only in training stay as they are."""
    missing, unknown = model.load_state_dict(tensors, strict=False)
    if unknown or any(name.startswith(("talker.", "speaker_encoder.")) for name in missing):
        raise ValueError(f"the weights to begin with are of another model: {(unknown or missing)[:3]}")


def run_block(
    layer: DecoderLayer,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    num_rows: int,
    mask: Tensor | None,
    dropout: float,
    guide: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Run one layer over rows that lie one after the other: x [rows * length, hidden].

    `mask` [rows, 1, length, length] says which column sees which (None: causal); `guide` [rows, length] says which
    column the first head should look at. Returns the output and the loss of that head.
    """
    guide_loss: Tensor | None = None

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        nonlocal guide_loss
        q, k, v = (
            t.view(num_rows, -1, *t.shape[1:]).transpose(1, 2) for t in (q, k, v)
        )  # [rows, heads, length, head_dim]
        if guide is not None and mask is not None:
            logits = (q[:, 0].float() @ k[:, 0].float().mT) * q.shape[-1] ** -0.5
            logits = logits.masked_fill(~mask[:, 0], MASKED)
            guide_loss = F.cross_entropy(logits.flatten(0, 1), guide.flatten(), ignore_index=IGNORED)
        sharing = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(sharing, 1), v.repeat_interleave(sharing, 1)
        out = F.scaled_dot_product_attention(q, k.to(q.dtype), v.to(q.dtype), attn_mask=mask, is_causal=mask is None)
        return out.transpose(1, 2).flatten(0, 1)

    out = layer(x, Rotation(cos, sin), attend)
    if dropout > 0:
        out = x + F.dropout(out - x, dropout)
    return out, guide_loss


def compute_losses(
    model: TrainedTalker,
    store: RowStore,
    batch: DeviceBatch,
    reg: Regularization,
    block: Block = run_block,
    anchor: Anchor | None = None,
) -> Losses:
    index = batch.index.flatten().long()
    target = store.target[index].long()
    wanted = store.codes[target.clamp(min=0)].long()  # [positions, codebooks]
    history = store.codes[store.frame[index].long().clamp(min=0)].long()
    if reg.corrupted > 0:
        elsewhere = history[torch.randint(len(history), (len(history),), device=index.device)]
        frames = torch.rand(len(history), 1, device=index.device) < reg.corrupted
        history = torch.where(frames & (torch.rand_like(history, dtype=torch.float32) < 0.5), elsewhere, history)
    x_vectors, traits_loss = _x_vectors(model, store, batch.references, augment=reg.augmented_references)
    mask = _mask(batch.segment)
    if reg.own_frames > 0:
        history = _with_own_frames(model, store, batch, history, target, mask, x_vectors, reg, block)
    guide = _guide(store, batch, index)
    hidden, guide_loss = _backbone(model, store, batch, history, mask, x_vectors, reg.dropout, guide, block)

    asked = model.config.codec_eos_id + 1  # ids above the end token are never sampled: leave them out
    logits = F.linear(hidden, model.talker.codec_head.weight[:asked]).float()
    end = torch.where(target == END, model.config.codec_eos_id, IGNORED)
    first = torch.where(target >= 0, wanted[:, 0], end)
    phones = model.phone_head(hidden).float().view(len(hidden), PHONES_PER_FRAME, -1)
    spoken = torch.where((target >= 0)[:, None], store.phones[target.clamp(min=0)].long(), IGNORED)

    chosen = _some(target >= 0, reg.predictor_frames or len(target))
    books = predictor_logits(
        model, hidden.index_select(0, chosen), wanted[chosen], block
    ).float()  # [chosen, codebooks - 1, codes]
    others = torch.where((target[chosen] >= 0)[:, None], wanted[chosen, 1:], IGNORED)
    drift = logits.new_zeros(())
    if anchor:
        with torch.no_grad():
            before, _ = _backbone(anchor.model, store, batch, history, mask, x_vectors, 0.0, _no_guide(batch), block)
            codes_before = F.linear(before, anchor.model.talker.codec_head.weight[:asked])
            books_before = predictor_logits(anchor.model, before.index_select(0, chosen), wanted[chosen], block)
        # The end comes behind a sentence's last frame, and its first frame behind none.
        frame = torch.maximum(target, store.frame[index].long())
        known = anchor.languages[store.languages[frame.clamp(min=0)].long()] & (target != NOTHING)
        drift = _divergence(logits, codes_before, known)
        drift = drift + _divergence(books, books_before, (known & (target >= 0))[chosen])
    return Losses(
        first=F.cross_entropy(logits, first, ignore_index=IGNORED),
        predictor=F.cross_entropy(books.flatten(0, 1), others.flatten(), ignore_index=IGNORED),
        guide=guide_loss,
        phones=F.cross_entropy(phones.flatten(0, 1), spoken.flatten(), ignore_index=IGNORED),
        traits=traits_loss,
        drift=drift,
        num_frames=(target >= 0).sum(),
        first_hits=(logits.argmax(-1) == first) & (target >= 0),
        predictor_hits=(books.argmax(-1) == others) & (others >= 0),
    )


def _divergence(logits: Tensor, before: Tensor, known: Tensor) -> Tensor:
    """KL(before, now) in nats, summed over the books of each position and averaged over the `known` ones [positions].
    `logits`, `before`: [positions, codes] or [positions, books, codes]."""
    each = F.kl_div(logits.log_softmax(-1), before.float().log_softmax(-1), reduction="none", log_target=True)
    return (each.flatten(1).sum(1) * known).sum() / known.sum().clamp(min=1)


def _x_vectors(
    model: TrainedTalker, store: RowStore, references: Tensor, *, augment: bool
) -> tuple[Tensor | None, Tensor]:
    """Return speaker embeddings [references, hidden], and the loss of the traits that are read from them."""
    if model.speaker_encoder is None:
        return None, torch.zeros((), device=references.device)
    chosen = references.long()
    mels = store.mels[chosen].float()
    with torch.autocast(mels.device.type, enabled=False):
        x_vectors = model.speaker_encoder(augmented(mels) if augment else mels)
        read = model.trait_head(x_vectors)
        loss = F.mse_loss(read[:, :NUM_TRAITS], store.traits[chosen])
        return x_vectors, loss + F.cross_entropy(read[:, NUM_TRAITS:], store.teachers[chosen])


def _layers(stack: nn.Module) -> list[DecoderLayer]:
    return [layer for layer in stack.modules() if isinstance(layer, DecoderLayer)]


def _mask(segment: Tensor) -> Tensor:
    """The mask [rows, 1, length, length]: each position sees the past of its own sentence. Padding sees padding, so no
    position sees nothing."""
    length = segment.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=segment.device).tril()
    return ((segment[:, :, None] == segment[:, None, :]) & causal)[:, None]


def _guide(store: RowStore, batch: DeviceBatch, index: Tensor) -> Tensor:
    guide = store.guide[index].long().view_as(batch.index)
    return torch.where(guide >= 0, guide + batch.tail_start, IGNORED)


def _backbone(
    model: TrainedTalker,
    store: RowStore,
    batch: DeviceBatch,
    history: Tensor,
    mask: Tensor,
    x_vectors: Tensor | None,
    dropout: float,
    guide: Tensor,
    block: Block,
) -> tuple[Tensor, Tensor]:
    """Return the final hidden states [positions, hidden] and the guide loss."""
    talker, index = model.talker, batch.index.flatten().long()
    # Project the whole text table instead of every position: the table is many times smaller than the batch.
    text = F.embedding(store.text[index].long(), talker.text_projection(talker.model.text_embedding.weight))
    control = store.control[index].long()
    control_part = talker.model.codec_embedding(control.clamp(min=0)) * (control >= 0)[:, None]
    frame_part = talker.embed_frames(history) * (store.frame[index] >= 0)[:, None]
    x = text + control_part + frame_part
    if x_vectors is not None:
        x = x + F.embedding(batch.voice.flatten().long(), x_vectors) * (control == X_VECTOR)[:, None]
    if dropout > 0:
        x = F.dropout(x, dropout / 2)
    num_rows, length = batch.index.shape
    positions = torch.arange(length, device=index.device).repeat(num_rows)
    rotation = RotaryTable(model.config.stack, length, x.device, torch.float32).at(positions)
    guide_loss = x.new_zeros(())
    for number, layer in enumerate(_layers(talker.model)):
        x, loss = block(
            layer, x, rotation.cos, rotation.sin, num_rows, mask, dropout, guide if number in GUIDED_LAYERS else None
        )
        guide_loss = guide_loss if loss is None else guide_loss + loss
    return talker.model.norm(x), guide_loss


def predictor_logits(model: TrainedTalker, hidden: Tensor, codes: Tensor, block: Block) -> Tensor:
    """Logits of every book but the first, given the true codes of the books before: [frames, codebooks - 1, codes]."""
    predictor, c = model.talker.code_predictor, model.predictor_config
    tables = (model.talker.model.codec_embedding, *predictor.model.codec_embedding)
    known = [table(ids) for table, ids in zip(tables, codes.unbind(1)[:-1], strict=False)]
    x = predictor.small_to_mtp_projection(torch.stack([hidden, *(t.to(hidden.dtype) for t in known)], 1).flatten(0, 1))
    num_positions = codes.shape[1]
    positions = torch.arange(num_positions, device=x.device).repeat(len(hidden))
    rotation = RotaryTable(c.stack, num_positions, x.device, torch.float32).at(positions)
    for layer in _layers(predictor.model):
        x, _ = block(layer, x, rotation.cos, rotation.sin, len(hidden), None, 0.0, None)
    by_position = predictor.model.norm(x).view(len(hidden), num_positions, -1)
    return torch.stack([head(by_position[:, i + 1]) for i, head in enumerate(predictor.lm_head)], 1)


@torch.no_grad()
def _with_own_frames(
    model: TrainedTalker,
    store: RowStore,
    batch: DeviceBatch,
    history: Tensor,
    target: Tensor,
    mask: Tensor,
    x_vectors: Tensor | None,
    reg: Regularization,
    block: Block,
) -> Tensor:
    """Return `history` with some frames replaced by those that the model itself makes (greedily). In use, its history
    has only such frames."""
    hidden, _ = _backbone(model, store, batch, history, mask, x_vectors, 0.0, _no_guide(batch), block)
    chosen = _some(target >= 0, reg.own_frames)
    hidden = hidden[chosen]
    num_codes = model.predictor_config.vocab_size
    first = F.linear(hidden, model.talker.codec_head.weight[:num_codes]).argmax(-1)
    num_books = history.shape[1]
    rotary = RotaryTable(model.predictor_config.stack, num_books, hidden.device, hidden.dtype)
    embedding = model.talker.model.codec_embedding(first).to(hidden.dtype)
    others, _ = model.talker.code_predictor.predict(
        hidden, embedding, num_books, rotary, lambda book, logits: logits.argmax(-1)
    )
    own = torch.stack([first, *others], 1)
    # The frame made at a row goes in at the next row. In a small batch, some of the chosen rows have no target: their
    # next row keeps its history. The very last position has no next one.
    following = (chosen + 1).clamp(max=len(history) - 1)
    own = torch.where((target[chosen] >= 0)[:, None], own, history[following])
    return history.index_copy(0, following, own)


def _no_guide(batch: DeviceBatch) -> Tensor:
    return torch.full_like(batch.index, IGNORED, dtype=torch.long)


def _some(eligible: Tensor, number: int) -> Tensor:
    """Return the indices of `number` random positions, eligible ones first. The size is fixed, so the host need not
    wait for the device."""
    return torch.topk(torch.rand(len(eligible), device=eligible.device) + eligible, min(number, len(eligible))).indices

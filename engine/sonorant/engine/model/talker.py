"""Talker: rows of embeddings in, hidden states and first-codebook logits out. Attribute names mirror `talker.*`.

A row of the prompt is the sum of a text part and a codec part, either of which may be absent; a row of a later step is
the last frame (the sum of its codes' embeddings) plus one text id.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sonorant.engine.checkpoint.config import Checkpoint, TalkerModelConfig
from sonorant.engine.model.attention import PagedRows, WatchedHead, paged_attention, watched_attention
from sonorant.engine.model.code_predictor import CodePredictor
from sonorant.engine.model.layers import DecoderLayer, RMSNorm, RotaryTable, store_transposed
from sonorant.engine.model.weights import Embedding

FOLDED_AT_ONCE = 8192  # rows of the text embedding; their projection takes 32 MB in bfloat16


class Talker(nn.Module):
    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__()
        c = checkpoint.talker
        self.model = _Model(c)
        self.text_projection: nn.Module = _TextProjection(c)
        self.codec_head = nn.Linear(c.stack.hidden_size, c.vocab_size, bias=False)
        self.code_predictor = CodePredictor(checkpoint.code_predictor, c.stack.hidden_size)

    def prepare(self) -> None:
        """Rearrange the loaded weights for inference: faster, with the same results."""
        self.join()
        if self.codec_head.weight.device.type == "cpu":
            store_transposed(self)

    def join(self) -> None:
        """Join the projections of all attentions, once the weights are loaded."""
        for layer in (*self.model.layers, *self.code_predictor.model.layers):
            layer.join()

    def fold_text_projection(self) -> None:
        """Replace the text embedding by its projection, so that a row of text is only looked up: the same results, but
        for rounding. A table of the same size is overwritten."""
        embedding = self.model.text_embedding
        table = embedding.weight.data
        hidden = self.codec_head.in_features
        folded = table if table.shape[1] == hidden else table.new_empty(len(table), hidden)
        for start in range(0, len(table), FOLDED_AT_ONCE):
            folded[start : start + FOLDED_AT_ONCE] = self.text_projection(table[start : start + FOLDED_AT_ONCE])
        embedding.weight = nn.Parameter(folded, requires_grad=False)
        self.text_projection = nn.Identity()

    def embed_text(self, ids: Tensor) -> Tensor:  # [rows] -> [rows, hidden]; zeros where the id is negative
        projected: Tensor = self.text_projection(self.model.text_embedding(ids.clamp(min=0)))
        return projected.masked_fill_((ids < 0)[:, None], 0)

    def embed_codec(self, ids: Tensor) -> Tensor:  # [rows] -> [rows, hidden]; zeros where the id is negative
        embedded: Tensor = self.model.codec_embedding(ids.clamp(min=0))
        return embedded.masked_fill_((ids < 0)[:, None], 0)

    def embed_frames(self, codes: Tensor) -> Tensor:  # [rows, codebooks] -> [rows, hidden]
        first, *rest = codes.unbind(1)
        tables = self.code_predictor.model.codec_embedding
        parts = [table(ids) for table, ids in zip(tables, rest, strict=False)]
        return sum_frame([self.model.codec_embedding(first), *parts])

    def forward(
        self,
        x: Tensor,
        rotary: RotaryTable,
        positions: Tensor,
        cache: Tensor,
        rows: PagedRows,
        watched: tuple[int, WatchedHead] | None = None,
    ) -> Tensor:
        """x [rows, hidden] at `positions` [rows]; cache [layers, 2, positions of the pool, kv_heads, head_dim].

        `watched`: the number of a layer, and the `WatchedHead` that takes note of its attention.
        """
        rotation = rotary.at(positions)
        for number, (layer, (keys, values)) in enumerate(zip(self.model.layers, cache, strict=True)):
            attend = partial(paged_attention, keys=keys, values=values, rows=rows)
            if watched is not None and watched[0] == number:
                attend = partial(watched_attention, keys=keys, values=values, rows=rows, watch=watched[1])
            x = layer(x, rotation, attend)
        out: Tensor = self.model.norm(x)
        return out


def sum_frame(embeddings: list[Tensor]) -> Tensor:
    """Sum the embeddings of all codebooks and round once, as the official package does."""
    return torch.stack(embeddings, 1).sum(1)


class _Model(nn.Module):
    def __init__(self, c: TalkerModelConfig) -> None:
        super().__init__()
        self.text_embedding = Embedding(c.text_vocab_size, c.text_hidden_size)
        self.codec_embedding = Embedding(c.vocab_size, c.stack.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(c.stack) for _ in range(c.stack.num_layers))
        self.norm = RMSNorm(c.stack.hidden_size, c.stack.rms_norm_eps)


class _TextProjection(nn.Module):
    def __init__(self, c: TalkerModelConfig) -> None:
        super().__init__()
        self.linear_fc1 = nn.Linear(c.text_hidden_size, c.text_hidden_size)
        self.linear_fc2 = nn.Linear(c.text_hidden_size, c.stack.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear_fc2(F.silu(self.linear_fc1(x)))
        return out

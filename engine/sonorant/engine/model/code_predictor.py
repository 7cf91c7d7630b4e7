"""Code predictor: the remaining codebooks of one frame, from the talker's hidden state and the frame's first code.

Keys and values are kept for one frame only, and positions start at 0 in each frame. Attribute names mirror
`talker.code_predictor.*`.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from sonorant.engine.checkpoint.config import CodePredictorConfig
from sonorant.engine.model.attention import frame_attention
from sonorant.engine.model.layers import DecoderLayer, RMSNorm, RotaryTable, Rotation
from sonorant.engine.model.weights import Embedding

# (index of the codebook, logits [rows, codes]) -> ids [rows]
ChooseCode = Callable[[int, Tensor], Tensor]


class CodePredictor(nn.Module):
    def __init__(self, c: CodePredictorConfig, talker_hidden_size: int) -> None:
        super().__init__()
        hidden_size = c.stack.hidden_size
        self.config = c.stack
        self.model = _Model(c, talker_hidden_size)
        self.lm_head = nn.ModuleList(
            nn.Linear(hidden_size, c.vocab_size, bias=False) for _ in range(c.num_codebooks - 1)
        )
        self.small_to_mtp_projection: nn.Module = nn.Identity()
        if hidden_size != talker_hidden_size:
            self.small_to_mtp_projection = nn.Linear(talker_hidden_size, hidden_size)

    def predict(
        self, hidden: Tensor, first_embedding: Tensor, num_codebooks: int, rotary: RotaryTable, choose: ChooseCode
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return codes 1 .. num_codebooks - 1 of each row, as ids [rows], and their embeddings [rows, talker hidden].

        `hidden` is the talker's state that the first code came from, `first_embedding` is the row of that code in the
        talker's embedding table.
        """
        rows, c = hidden.shape[0], self.config
        cache = hidden.new_zeros(c.num_layers, 2, rows, num_codebooks, c.num_kv_heads, c.head_dim)
        inputs = torch.stack([hidden, first_embedding], 1).flatten(0, 1)
        rotation = rotary.at(torch.arange(2, device=hidden.device).repeat(rows))
        out = self._forward(inputs, rotation, cache, position=0)[1::2]
        codes: list[Tensor] = []
        embeddings: list[Tensor] = []
        for book in range(1, num_codebooks):
            codes.append(choose(book, self.lm_head[book - 1](out)))
            embeddings.append(self.model.codec_embedding[book - 1](codes[-1]))
            if book < num_codebooks - 1:
                out = self._forward(embeddings[-1], rotary.at_each(book + 1), cache, position=book + 1)
        return codes, embeddings

    def _forward(self, x: Tensor, rotation: Rotation, cache: Tensor, position: int) -> Tensor:
        x = self.small_to_mtp_projection(x)
        for layer, (keys, values) in zip(self.model.layers, cache, strict=True):
            x = layer(x, rotation, partial(frame_attention, keys=keys, values=values, position=position))
        out: Tensor = self.model.norm(x)
        return out


class _Model(nn.Module):
    def __init__(self, c: CodePredictorConfig, talker_hidden_size: int) -> None:
        super().__init__()
        self.codec_embedding = nn.ModuleList(
            Embedding(c.vocab_size, talker_hidden_size) for _ in range(c.num_codebooks - 1)
        )
        self.layers = nn.ModuleList(DecoderLayer(c.stack) for _ in range(c.stack.num_layers))
        self.norm = RMSNorm(c.stack.hidden_size, c.stack.rms_norm_eps)

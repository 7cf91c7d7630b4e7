"""Finds the attention head that looks at the token being spoken, without labels, in speech that the talker makes.

Speech goes through its text from the first token to the last and never back. So most attention of a head that follows
the speech lies on one such path through the text; any other head has little attention on each of these paths.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.model.layers import DecoderLayer, RotaryTable
from sonorant.engine.model.talker import Talker
from sonorant.engine.types import Float32Array, Int64Array, PromptPlan

LEAST_SHARE = 0.6  # a head needs as much to be used; measured: 0.8 or more, but 0.5 if not trained to follow the text
MAX_STEP = 3  # tokens that a path can advance in one frame
_NOWHERE = -1e9


@dataclass(frozen=True, slots=True)
class AlignmentHead:
    layer: int
    head: int
    share: float  # of its attention that goes to a token while the path is at that token


def find_alignment_head(
    talker: Talker, checkpoint: Checkpoint, plan: PromptPlan, codes: Int64Array
) -> AlignmentHead | None:
    """Find the head in an utterance: its prompt, which has all the text, and its codes [frames, codebooks].

    Returns None if no head is good enough.
    """
    num_tokens = plan.num_text_tokens
    if len(codes) * MAX_STEP <= num_tokens:  # too few frames for a path to reach the last token
        return None
    by_layer = _attention(talker, checkpoint, plan, codes)
    best: AlignmentHead | None = None
    best_likely = 0.0
    for layer, attention in enumerate(by_layer):
        per_frame, per_token = path_shares(attention)
        for head, (likely, share) in enumerate(zip(per_frame.tolist(), per_token.tolist(), strict=True)):
            if share >= LEAST_SHARE and likely > best_likely:
                best, best_likely = AlignmentHead(layer, head, round(share, 3)), likely
    return best


def path_shares(attention: Float32Array) -> tuple[Float32Array, Float32Array]:  # [heads, frames, tokens]
    """How much attention each head has on its best path: [heads] averaged over frames, [heads] over the path's tokens.

    The second is low for a head that stays at one token: it has much attention in most frames, but at one token only.
    """
    num_heads, num_frames, num_tokens = attention.shape
    scores = np.full((num_heads, num_tokens), _NOWHERE)
    scores[:, 0] = attention[:, 0, 0]
    steps = []
    for frame in range(1, num_frames):
        before = np.pad(scores, ((0, 0), (MAX_STEP, 0)), constant_values=_NOWHERE)
        came_by = np.stack([before[:, MAX_STEP - step :][:, :num_tokens] for step in range(MAX_STEP + 1)])
        steps.append(came_by.argmax(0))
        scores = came_by.max(0) + attention[:, frame]
    heads = np.arange(num_heads)
    token = np.full(num_heads, num_tokens - 1)
    path = [token]
    for step in reversed(steps):
        token = token - step[heads, token]
        path.append(token)
    paths = np.stack(path[::-1], 1)  # [heads, frames]
    on_path = np.take_along_axis(attention, paths[:, :, None], 2)[:, :, 0]
    per_token = [
        np.mean([own[tokens == token].mean() for token in np.unique(tokens)])
        for own, tokens in zip(on_path, paths, strict=True)
    ]
    return on_path.mean(1), np.array(per_token, np.float32)


def _attention(
    talker: Talker, checkpoint: Checkpoint, plan: PromptPlan, codes: Int64Array
) -> list[Float32Array]:  # [heads, frames, tokens] of each layer
    """Attention to the text tokens from the rows that the frames were sampled from, computed in one pass."""
    c, device = checkpoint.talker.stack, talker.codec_head.weight.device
    pads = [checkpoint.text_ids.tts_pad] * (len(codes) - 1)
    no_items = [-1] * len(pads)
    x = talker.embed_text(torch.tensor([*plan.text_ids, *pads], device=device))
    x = x + talker.embed_codec(torch.tensor([*plan.codec_items, *no_items], device=device))
    x[plan.num_rows :] += talker.embed_frames(torch.from_numpy(codes[:-1]).to(device))
    positions = torch.arange(len(x), device=device)
    rotation = RotaryTable(c, len(x), device, x.dtype).at(positions)
    tokens = slice(plan.text_row, plan.text_row + plan.num_text_tokens)
    seen: list[Float32Array] = []

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(0, 1) for t in (q, k, v))  # [heads, rows, head_dim]
        k, v = (t.repeat_interleave(len(q) // len(t), 0) for t in (k, v))
        logits = q[:, plan.num_rows - 1 :] @ k[:, tokens].mT * q.shape[-1] ** -0.5
        seen.append(logits.float().softmax(-1).cpu().numpy())
        return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0].transpose(0, 1)

    for layer in talker.model.layers:
        assert isinstance(layer, DecoderLayer)
        x = layer(x, rotation, attend)
    return seen

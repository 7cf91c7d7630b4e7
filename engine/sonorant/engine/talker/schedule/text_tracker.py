"""Finds how far in its text each stream is at each frame, from where one attention head looks. Pure: only numpy.

The head looks at the token being spoken, but not steadily. So the path of the speech through the text is the most
likely one that never goes back (Viterbi). Its position is taken at each frame, without waiting for later frames. Only
tokens near the one being spoken are considered, in a window that moves along with the speech.
"""

from collections.abc import Sequence

import numpy as np

from sonorant.engine.types import Float32Array, Int64Array

WINDOW = 64  # tokens that are considered
BEHIND = 8  # of these, tokens before the one being spoken
SKIP_COST = 0.5  # per token that the path advances, in units of log probability
LEAST = -12.0  # lower bound of a token's log probability, so that no single frame decides
FAR_BELOW = np.float32(-1e30)  # instead of -inf, because -inf - -inf is NaN

NO_LOGITS = np.empty((0, WINDOW), np.float32)  # for a step without watched rows

_PLACES = np.arange(WINDOW)
_COSTS = (SKIP_COST * _PLACES).astype(np.float32)


class TextTracker:
    """The paths of all slots. Positions are in text tokens: token i begins at i."""

    def __init__(self, num_slots: int) -> None:
        self._first = np.zeros(num_slots, np.int64)  # first token of the slot's window
        self._scores = np.zeros((num_slots, WINDOW), np.float32)  # of the best path to each token of the window
        self._position = np.zeros(num_slots, np.float32)

    def begin(self, slot: int, position: float = 0.0) -> None:
        """Start a path in a slot, for a stream that is at about this position in its text."""
        token = int(position)
        first = self._first[slot] = max(0, token - BEHIND)
        self._scores[slot] = FAR_BELOW
        self._scores[slot, token - first] = 0.0
        self._position[slot] = position

    def windows(self, slots: Sequence[int]) -> list[int]:
        """The first tokens of the slots' windows."""
        tokens: list[int] = self._first[slots].tolist()
        return tokens

    def positions(self, slots: Sequence[int]) -> Float32Array:
        """Where the slots' streams were in their texts in the middle of their last frames, [slots]."""
        return self._position[slots]

    def advance(self, slots: Sequence[int], num_tokens: Sequence[int], logits: Float32Array) -> None:
        """Advance the paths of some slots by one frame. `num_tokens`: how many tokens of its text each has by now.

        `logits` [rows, WINDOW]: the head's for the tokens of the window; ignored for tokens that have not come.
        """
        rows: Int64Array = np.array(slots, np.int64)
        is_there = (np.array(num_tokens) - self._first[rows])[:, None] > _PLACES
        is_there[:, 0] = True
        likely = np.where(is_there, logits, FAR_BELOW)
        likely -= likely.max(1, keepdims=True)
        weights = np.exp(likely)
        likely -= np.log(weights.sum(1, keepdims=True))

        before = np.maximum.accumulate(self._scores[rows] + _COSTS, 1) - _COSTS
        scores = np.where(is_there, before + np.maximum(likely, LEAST), FAR_BELOW)
        scores -= scores.max(1, keepdims=True)
        current = scores.argmax(1)

        # Interpolate between tokens: take where the head looks on average, at the path's token and its neighbours.
        near = np.abs(_PLACES - current[:, None]) <= 1
        weights = np.where(near, weights, 0.0)
        total = weights.sum(1)
        mean = np.where(total > 0, (weights * _PLACES).sum(1) / np.where(total > 0, total, 1.0), current)
        reached = (self._first[rows] + mean + 0.5).astype(np.float32)
        self._position[rows] = np.maximum(self._position[rows], reached)

        moved = np.maximum(current - BEHIND, 0)
        source = _PLACES + moved[:, None]
        kept = np.take_along_axis(scores, np.minimum(source, WINDOW - 1), 1)
        self._scores[rows] = np.where(source < WINDOW, kept, FAR_BELOW)
        self._first[rows] += moved

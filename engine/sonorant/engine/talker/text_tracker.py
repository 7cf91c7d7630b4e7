"""How far in its text each stream is at each of its frames, from where one attention head looks. Pure: numpy alone.

A head that looks at the token being spoken does so a little unsteadily. So the path of the speech through the text is
the likeliest one that never goes back (Viterbi), taken as it stands at each frame: nothing waits for later frames. Only
the tokens near the one being spoken are looked at, in a window that moves along with the speech.
"""

from collections.abc import Sequence

import numpy as np

from sonorant.engine.types import Float32Array, Int64Array

WINDOW = 64  # tokens that are looked at
BEHIND = 8  # of these, tokens before the one being spoken
SKIP_COST = 0.5  # of each token that the path goes ahead, in units of log probability
LEAST = -12.0  # log probability of a token that the head does not look at: no frame alone decides
FAR_BELOW = np.float32(-1e30)  # instead of -inf, whose differences are no numbers

NO_LOGITS = np.empty((0, WINDOW), np.float32)  # nobody is watched

_PLACES = np.arange(WINDOW)
_COSTS = (SKIP_COST * _PLACES).astype(np.float32)


class TextTracker:
    """The paths of all slots. Positions are in text tokens: token i begins at i."""

    def __init__(self, num_slots: int) -> None:
        self._first = np.zeros(num_slots, np.int64)  # token that the slot's window begins with
        self._scores = np.zeros((num_slots, WINDOW), np.float32)  # of the best path to each token of the window
        self._position = np.zeros(num_slots, np.float32)

    def begin(self, slot: int, position: float = 0.0) -> None:
        """A stream that is about there in its text."""
        token = int(position)
        first = self._first[slot] = max(0, token - BEHIND)
        self._scores[slot] = FAR_BELOW
        self._scores[slot, token - first] = 0.0
        self._position[slot] = position

    def windows(self, slots: Sequence[int]) -> list[int]:
        """The tokens that the slots' windows begin with."""
        tokens: list[int] = self._first[slots].tolist()
        return tokens

    def positions(self, slots: Sequence[int]) -> Float32Array:
        """Where they were at the middle of their last frames [slots]."""
        return self._position[slots]

    def advance(self, slots: Sequence[int], num_tokens: Sequence[int], logits: Float32Array) -> None:
        """One more frame of some slots, each of which has so many tokens.

        `logits` [rows, WINDOW] are what the head gives the tokens of the window; those that are not there yet may have
        any value.
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

        # Between tokens: where the head looks on average, of the token on the path and its neighbours.
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

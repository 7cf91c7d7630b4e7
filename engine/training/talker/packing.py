"""Batches of one fixed shape: sentences of any length side by side in long rows, none of them cut.

One shape for every step is what lets the whole training step be one CUDA graph. Which sentences stand in a row is said
by segment numbers, which the attention mask is made of.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.training.talker.rows import LANGUAGES, RowStore

IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Batch:
    index: IntArray  # [rows, length] into the RowStore; 0 = padding
    segment: IntArray  # [rows, length] number of the sentence within the batch; -1 = padding
    tail_start: IntArray  # [rows, length] column where the sentence's tail begins
    num_sentences: int


@dataclass(frozen=True, slots=True)
class Piece:
    head: tuple[int, int]  # first row in the store, number of rows
    tail: tuple[int, int]

    @property
    def length(self) -> int:
        return self.head[1] + self.tail[1]


class Sampler:
    """Endless batches of random sentences, each sentence as often as any other, the pool growing meanwhile."""

    def __init__(self, store: RowStore, num_rows: int, length: int, whole_text_share: float, seed: int) -> None:
        self._store = store
        self._shape = num_rows, length
        self._whole_text_share = whole_text_share
        self._rng = np.random.default_rng(seed)
        self._pieces = self._endless()
        self._next: Piece | None = None

    def batch(self) -> Batch:
        num_rows, length = self._shape
        placed: list[list[Piece]] = [[]]
        used = 0
        while True:
            piece = self._next or next(self._pieces)
            self._next = None
            if used + piece.length > length:
                if len(placed) == num_rows:
                    self._next = piece  # it opens the next batch
                    return pack(placed, length)
                placed.append([])
                used = 0
            placed[-1].append(piece)
            used += piece.length

    def _endless(self) -> Iterator[Piece]:
        while True:
            # A fresh order over what the pool holds by now; short enough that newcomers are used soon.
            sentences = self._store.training
            for i in self._rng.permutation(len(sentences))[:20_000]:
                layout = int(self._rng.random() < self._whole_text_share)
                piece = piece_of(self._store, sentences[i], layout, LANGUAGES[int(self._rng.random() < 0.15)])
                if piece.length <= self._shape[1]:
                    yield piece


def piece_of(store: RowStore, sentence: tuple[int, ...], layout: int, language: str) -> Piece:
    voice, *tails = sentence
    return Piece(store.heads[voice, language], (tails[2 * layout], tails[2 * layout + 1]))


def pack(placed: Sequence[Sequence[Piece]], length: int) -> Batch:
    index = np.zeros((len(placed), length), np.int32)
    segment = np.full((len(placed), length), -1, np.int32)
    tail_start = np.zeros((len(placed), length), np.int32)
    number = 0
    for row, pieces in enumerate(placed):
        column = 0
        for piece in pieces:
            middle, end = column + piece.head[1], column + piece.length
            index[row, column:middle] = np.arange(piece.head[0], sum(piece.head))
            index[row, middle:end] = np.arange(piece.tail[0], sum(piece.tail))
            segment[row, column:end] = number
            tail_start[row, column:end] = middle
            number, column = number + 1, end
    return Batch(index, segment, tail_start, number)

"""Makes batches of one fixed shape: whole sentences of any length, side by side in long rows.

Because the shape is fixed, the whole training step can be one CUDA graph. Segment numbers tell the sentences of a row
apart, and the attention mask is made of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sonorant.training.languages import AUTO
from sonorant.training.talker.rows import RowStore, StoredSentence

IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Batch:
    index: IntArray  # [rows, length] into the RowStore; 0 = padding
    segment: IntArray  # [rows, length] number of the sentence within the batch; -1 = padding
    tail_start: IntArray  # [rows, length] column where the sentence's tail begins
    voice: IntArray  # [rows, length] index in `references` of the voice that the sentence is to have
    references: IntArray  # [references] numbers of mels in the RowStore; empty if the checkpoint has voices of its own
    num_sentences: int


@dataclass(frozen=True, slots=True)
class BatchShape:
    num_rows: int
    length: int
    num_references: int = 0  # speakers in a batch; 0 if voices are not cloned


@dataclass(frozen=True, slots=True)
class Mix:
    """What the sampled sentences are like; numbers are shares of them unless they say otherwise."""

    whole_text: float  # in the non-streaming layout
    pairs: float = 0.0  # with reference text and reference frames
    auto_language: float = 0.15
    sentences_of_speaker: int = 4  # a number: how many of a speaker follow one another, where voices are cloned


@dataclass(frozen=True, slots=True)
class Piece:
    head: tuple[int, int]  # first row in the store, number of rows
    tail: tuple[int, int]
    speaker: int
    mels: int  # number of its own mels in the store, or NOTHING

    @property
    def length(self) -> int:
        return self.head[1] + self.tail[1]


class Sampler:
    """Makes endless batches of random sentences, each as often as any other. The store may grow meanwhile."""

    def __init__(self, store: RowStore, shape: BatchShape, mix: Mix, seed: int) -> None:
        self._store, self._shape, self._mix = store, shape, mix
        self._rng = np.random.default_rng(seed)
        self._pieces = self._endless()
        self._next: Piece | None = None

    def batch(self) -> Batch:
        shape = self._shape
        placed: list[list[Piece]] = [[]]
        references: dict[int, int] = {}  # speaker -> mels
        used = 0
        while True:
            piece = self._next or next(self._pieces)
            self._next = piece  # the next batch begins with it if there is no room in this one
            if shape.num_references and piece.speaker not in references:
                if len(references) == shape.num_references:
                    break
                references[piece.speaker] = int(self._rng.choice(self._store.references[piece.speaker]))
            if references.get(piece.speaker) == piece.mels:
                self._next = None  # its voice is to come from a recording of another text
                continue
            if used + piece.length > shape.length:
                if len(placed) == shape.num_rows:
                    break
                placed.append([])
                used = 0
            placed[-1].append(piece)
            used += piece.length
            self._next = None
        return pack(placed, shape, references)

    def _endless(self) -> Iterator[Piece]:
        while True:
            # A new random order over the sentences that are there now, short enough that new ones are used soon.
            for sentence in self._speakers() if self._shape.num_references else self._sentences():
                layout = int(self._rng.random() < self._mix.whole_text)
                paired = self._rng.random() < self._mix.pairs
                language = AUTO if self._rng.random() < self._mix.auto_language else sentence.language
                piece = piece_of(self._store, sentence, layout, language, paired=paired)
                if piece.length <= self._shape.length:
                    yield piece

    def _sentences(self) -> Iterator[StoredSentence]:
        sentences = self._store.training
        for i in self._rng.permutation(len(sentences))[:20_000]:
            yield sentences[i]

    def _speakers(self) -> Iterator[StoredSentence]:
        """Yield sentences in random order: some of one speaker, then some of the next."""
        speakers = [speaker for speaker in self._store.by_speaker if speaker in self._store.references]
        for i in self._rng.permutation(len(speakers))[:2_000]:
            sentences = self._store.by_speaker[speakers[i]]
            for j in self._rng.permutation(len(sentences))[: self._mix.sentences_of_speaker]:
                yield sentences[j]


def piece_of(store: RowStore, sentence: StoredSentence, layout: int, language: str, *, paired: bool = False) -> Piece:
    tails = sentence.pair_tails if paired and sentence.pair_tails else sentence.tails
    return Piece(store.head(sentence.speaker, language), tails[layout], sentence.speaker, sentence.mels)


def pack(placed: Sequence[Sequence[Piece]], shape: BatchShape, references: Mapping[int, int]) -> Batch:
    """Make the batch of pieces `placed` in rows. `references`: speaker -> number of its mels in the store; it has all
    speakers of the pieces if voices are cloned."""
    size = shape.num_rows, shape.length
    index, tail_start, voice = (np.zeros(size, np.int32) for _ in range(3))
    segment = np.full(size, -1, np.int32)
    numbers = {speaker: number for number, speaker in enumerate(references)}
    chosen = np.zeros(shape.num_references, np.int32)
    chosen[: len(references)] = list(references.values())
    number = 0
    for row, pieces in enumerate(placed):
        column = 0
        for piece in pieces:
            middle, end = column + piece.head[1], column + piece.length
            index[row, column:middle] = np.arange(piece.head[0], sum(piece.head))
            index[row, middle:end] = np.arange(piece.tail[0], sum(piece.tail))
            segment[row, column:end] = number
            tail_start[row, column:end] = middle
            voice[row, column:end] = numbers.get(piece.speaker, 0)
            number, column = number + 1, end
    return Batch(index, segment, tail_start, voice, chosen, number)

"""Encodes text as Qwen2 tokens, whole or piece by piece with the same result, and says where each token stands in it.

Byte-level BPE over NFC text, split into pre-tokens (words with the character before them, single digits, runs of
punctuation, runs of whitespace) by the stock Qwen2 pattern. User text never becomes control tokens: `<|im_end|>`, for
example, is encoded as the characters it is made of. Whitespace around a text is dropped. Before all this, characters
that the checkpoint was not trained on are folded to those it knows.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property, lru_cache
from itertools import accumulate
from operator import itemgetter
from pathlib import Path

from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as Pipeline
from tokenizers.models import BPE
from tokenizers.normalizers import NFC

from sonorant.engine.checkpoint.config import Characters
from sonorant.engine.checkpoint.folders import PRESETS_DIR
from sonorant.engine.errors import CheckpointError
from sonorant.engine.prompt.characters import AsIs, FoldedStream
from sonorant.engine.prompt.nfc import NfcStream, clusters, normalize
from sonorant.engine.prompt.words_stream import AsWritten, WordsStream, speaks_numbers

# Qwen2 (transformers: models/qwen2/tokenization_qwen2.py). qwen-tts 0.1.1 replaces it when it loads a local folder with
# `fix_mistral_regex`; the models were trained with this one.
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Byte-level BPE writes every byte as a printable character, its *byte character*: a byte that is printable in Latin-1
# as itself, the others as U+0100, U+0101, ... in order.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_UNPRINTABLE = {byte: 0x100 + n for n, byte in enumerate(byte for byte in range(0x100) if byte not in _PRINTABLE)}
_ORIGINAL = {char: byte for byte, char in _UNPRINTABLE.items()}

KEPT_TOKENS = 4096  # whose shapes are kept
# The split pattern continues the last so many characters of a pre-token as it would continue all of it. Two letters or
# signs would do, but for what may still become a contraction.
CONTEXT_CHARS = 3
_BLOCK_CHARS = 256  # characters of a growing pre-token processed together, so that an endless word takes linear time
# A word of which more bytes than this are held back, such as a line of dots, is looked at after `_PATIENCE_BYTES` more
# only: its next token may begin at any of those bytes, and each look tries them all.
_LONG_WORD_BYTES = 32
_PATIENCE_BYTES = 16


class Tokenizer:
    """The text vocabulary of one checkpoint."""

    def __init__(self, bpe: BPE, characters: Characters = "unicode", *, in_words: bool = False) -> None:
        """`characters`: those that the checkpoint was trained on; `in_words`: whether it is given the
        words of numbers and letters."""
        self._bpe = bpe
        self._characters = characters
        self._in_words = in_words
        self._split = pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated")
        self._pipeline = Pipeline(bpe)
        self._pipeline.normalizer = NFC()
        self._pipeline.pre_tokenizer = pre_tokenizers.Sequence(
            [self._split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        tokens = sorted(self._pipeline.get_vocab())
        self.max_token_bytes = max(map(len, tokens))
        # All tokens in one text, and where each begins in it: a list of 150,000 texts takes 16 MB.
        self._tokens, self._begins = "".join(tokens), array("I", accumulate(map(len, tokens), initial=0))
        self.shape_of = lru_cache(KEPT_TOKENS)(self._shape_of)

    @classmethod
    def load(cls, folder: Path, characters: Characters = "unicode", *, in_words: bool = False) -> "Tokenizer":
        """Read `vocab.json` and `merges.txt` of a checkpoint folder; the presets share one pair."""
        source = PRESETS_DIR / "text_tokenizer" if folder.resolve().parent == PRESETS_DIR.resolve() else folder
        vocab, merges = source / "vocab.json", source / "merges.txt"
        for file in (vocab, merges):
            if not file.is_file():
                raise CheckpointError(f"{file} is missing; a checkpoint folder in the published layout has it")
        try:
            # The library would keep the tokens of 10,000 words, whoever sent them: 80 MB if these are long. That saves
            # 0.5 us a word.
            bpe = BPE.from_file(str(vocab), str(merges), cache_capacity=0)
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(f"{vocab} and {merges} are not a byte-level BPE vocabulary: {error}") from error
        missing = [byte for byte in range(0x100) if bpe.token_to_id(_byte_chars(bytes([byte]))) is None]
        if missing:
            raise CheckpointError(f"{vocab} lacks {len(missing)} of the 256 single-byte tokens; byte-level BPE has all")
        return cls(bpe, characters, in_words=in_words)

    @cached_property
    def newline_id(self) -> int:
        """The id of a single "\\n", which `encode` would drop."""
        return self.encode_word(_byte_chars(b"\n"))[0][0]

    def encode(self, text: str, language: str | None = None) -> list[int]:
        """Return the ids of a whole text."""
        return self._pipeline.encode(self.given(text, language), add_special_tokens=False).ids

    def given(self, text: str, language: str | None = None) -> str:
        """Return a whole text as the model is given it: normalized, folded, in words if it is to be so, and without
        whitespace around it."""
        folded = self.fold(language).push(normalize(text))
        given, _ = self.words(language).push(folded, range(len(folded)), is_last=True)
        return given.strip()

    def fold(self, language: str | None) -> FoldedStream | AsIs:
        """Return what folds the characters of one NFC text, which may come in pieces, in this language; None: the text
        shows it."""
        if self._characters == "unicode":
            return AsIs()
        return FoldedStream(self._characters, self._written_in(language), keeps_marks=self._in_words)

    def words(self, language: str | None) -> WordsStream | AsWritten:
        """Return what puts numbers and letters of one folded text into words, if this is to be done, in this language;
        None: the text shows it."""
        language = self._written_in(language)
        return WordsStream(language) if self._in_words and speaks_numbers(language) else AsWritten()

    def _written_in(self, language: str | None) -> str | None:
        """Return the language of the words for signs and numbers; None: the text shows it."""
        return "english" if self._characters == "ascii" else language

    def text_of(self, token_id: int) -> str:
        """Return the text of a token; bytes that are no whole character become U+FFFD."""
        return self.bytes_of(token_id).decode(errors="replace")

    def bytes_of(self, token_id: int) -> bytes:
        """Return the UTF-8 bytes of a token; those of all tokens of a text, joined, are the UTF-8 of the text."""
        chars = self._pipeline.id_to_token(token_id)
        assert chars is not None, "an id of the vocabulary"
        return chars.translate(_ORIGINAL).encode("latin-1")

    def split(self, text: str) -> list[str]:
        """Split NFC text into pre-tokens."""
        return [piece for piece, _ in self._split.pre_tokenize_str(text)]

    def encode_word(self, word: str) -> list[tuple[int, int]]:
        """Return (id, number of bytes) of each token of a pre-token, which is given as byte characters."""
        return [(token.id, len(token.value)) for token in self._bpe.tokenize(word)]

    def _shape_of(self, token_id: int) -> tuple[int, int]:
        """Return how many characters begin in a token, and how many blanks it begins with."""
        token = self.bytes_of(token_id)
        num_chars = sum(byte & 0xC0 != 0x80 for byte in token)
        text = token.decode(errors="replace")
        return num_chars, min(num_chars, len(text) - len(text.lstrip()))

    def begins_longer_token(self, chars: str) -> bool:
        """Whether some token begins with these byte characters and has more of them."""

        def token(place: int) -> str:  # of all, sorted
            return self._tokens[self._begins[place] : self._begins[place + 1]]

        num_tokens = len(self._begins) - 1
        place = bisect_right(range(num_tokens), chars, key=token)
        return place < num_tokens and token(place).startswith(chars)


class TokenOffsets:
    """Where the tokens of a text stand in it. The text's `TokenStream` keeps it. Offsets count code points.

    The tokens stand for the text as it is given to the model: in NFC and folded, which may change the number of
    characters, and without the whitespace around it.
    """

    def __init__(self, tokenizer: Tokenizer, language: str | None = None) -> None:
        self._tokenizer = tokenizer
        self._num_chars = 0  # of the text
        self._fold = tokenizer.fold(language)
        self._words = tokenizer.words(language)
        # Where the first character that is given begins in the text, and where each of them ends
        self._ends: list[int] = []
        self._num_taken = 0  # given characters that tokens have covered
        self._spans: list[tuple[int, int]] = []  # for each token, its place in the text without whitespace before it

    def take(self, text: str, *, is_last: bool = False) -> str:
        """Take more text, which no later text can change, and return what the model is given for it. `is_last`: nothing
        is held back."""
        given: list[str] = []
        ends: list[int] = []
        for part in (text,) if text.isascii() else clusters(text):
            composed = normalize(part)
            # If composing changes the number of characters, they all end together.
            is_same = len(composed) == len(part)
            for number, char in enumerate(composed, 1):
                given.append(more := self._fold.take(char, composed[number : number + 1] or " "))
                ends += [self._num_chars + (number if is_same else len(part))] * len(more)
            self._num_chars += len(part)
        text, given_ends = self._words.push("".join(given), ends, is_last=is_last)
        if not self._ends and (given_ends := given_ends[len(text) - len(text.lstrip()) :]):
            self._ends.append(given_ends[0] - 1)
        self._ends += given_ends
        return text

    def add(self, token_ids: Iterable[int]) -> None:
        """Add the next tokens of the text."""
        for token_id in token_ids:
            num_chars, num_spaces = self._tokenizer.shape_of(token_id)
            first, self._num_taken = self._num_taken + num_spaces, self._num_taken + num_chars
            start, end = (self._ends[n] if n < len(self._ends) else self._num_chars for n in (first, self._num_taken))
            self._spans.append((start, max(start, end)))

    def position_of(self, char: int) -> float:
        """Return where this character begins, in tokens: token i begins at i. After the last token added, its end."""
        index = bisect_right(self._spans, char, key=itemgetter(1))
        if index == len(self._spans):
            return float(index)
        start, end = self._spans[index]
        return float(index) if char <= start else index + (char - start) / (end - start)


class TokenStream:
    """Encodes a text that arrives in pieces. However it is cut, all ids returned, joined, are `encode(whole)`.

    A token is released once no later text can change it. Only these things are held back:

    * characters that may still compose (see `NfcStream`), or that only separate words;
    * what is to become words, with the word behind it (see `WordsStream`);
    * whitespace at the end: it is dropped if the text ends here, else it belongs to what follows;
    * the tokens of the last pre-token that may still change when it grows.

    A pre-token that does not end in whitespace only ever grows: whatever follows, it keeps the characters it has. Which
    of its tokens are final follows from one property of BPE: if an encoded text is cut between two tokens, each part
    alone has the same tokens as it had in the whole. Suppose the text grows, and look at the token that spans its old
    end. The tokens before it are the encoding of a shorter text, and it begins with the bytes from there to the old
    end. So we try every place near the end from which the rest begins some longer token: the tokens that the encodings
    up to all these places share are final. (Merges may rule some of these continuations out; then a token is held for a
    few characters more than necessary.)
    """

    def __init__(self, tokenizer: Tokenizer, offsets: TokenOffsets | None = None, language: str | None = None) -> None:
        """`offsets`, of the same language: learns where each token stands in the text."""
        self._tokenizer = tokenizer
        self._offsets = offsets
        self._nfc = NfcStream()
        self._fold = tokenizer.fold(language)
        self._words = tokenizer.words(language)
        self._started = False  # whether anything but whitespace has come
        self._whitespace: list[str] = []  # at the end of the text
        self._context = ""  # stands in for the last pre-token when more text is split
        self._word = ""  # byte characters of the last pre-token whose tokens are not released
        self._num_unseen = 0  # of them, since it was last looked for final tokens

    def flush(self) -> list[int]:
        """Return the tokens held back, as if the text ended here; text pushed later begins a new pre-token."""
        return self.push("", flushes=True)

    def end(self) -> list[int]:
        """Return the tokens held back; the whitespace at the end is dropped."""
        ids = self.flush()
        self._whitespace = []
        return ids

    def push(self, text: str, *, flushes: bool = False) -> list[int]:
        """Take more text; return the tokens that are now final, or with `flushes` all of them."""
        text = self._nfc.flush() if flushes else self._nfc.push(text)  # which no later text can change
        if self._offsets is None:
            folded = self._fold.push(normalize(text))
            text, _ = self._words.push(folded, range(len(folded)), is_last=flushes)
        else:
            text = self._offsets.take(text, is_last=flushes)
        if not self._started:
            text = text.lstrip()
            self._started = bool(text)
        body = text.rstrip()
        ids: list[int] = []
        if body:
            ids = self._extend("".join(self._whitespace) + body)
            self._whitespace = []
        if len(body) < len(text):
            self._whitespace.append(text[len(body) :])
        if flushes or (self._whitespace and len(self._tokenizer.split(self._context + self._whitespace[0][0])) > 1):
            ids += self._finish_word()
        if self._offsets is not None:
            self._offsets.add(ids)
        return ids

    def _extend(self, text: str) -> list[int]:
        """Take NFC text that does not end in whitespace."""
        first, *rest = self._tokenizer.split(self._context + text)
        last = first[len(self._context) :]
        ids: list[int] = []
        if rest:
            self._word += _byte_chars(last.encode())
            ids = self._finish_word()
            *whole, last = rest
            for piece in whole:
                ids += [token for token, _ in self._tokenizer.encode_word(_byte_chars(piece.encode()))]
        self._context = (self._context + last)[-CONTEXT_CHARS:]
        for start in range(0, len(last), _BLOCK_CHARS):
            more = _byte_chars(last[start : start + _BLOCK_CHARS].encode())
            self._word += more
            self._num_unseen += len(more)
            if len(self._word) <= _LONG_WORD_BYTES or self._num_unseen >= _PATIENCE_BYTES:
                ids += self._release_final()
        return ids

    def _finish_word(self) -> list[int]:
        ids = [token for token, _ in self._tokenizer.encode_word(self._word)]
        self._context = self._word = ""
        return ids

    def _release_final(self) -> list[int]:
        """Release the tokens of the last pre-token that stay the same whatever is appended to it."""
        self._num_unseen = 0
        word = self._word
        final = self._tokenizer.encode_word(word)
        for start in range(max(0, len(word) - self._tokenizer.max_token_bytes + 1), len(word)):
            if self._tokenizer.begins_longer_token(word[start:]):
                shorter = self._tokenizer.encode_word(word[:start])
                final = final[: len(shorter)]
                while final != shorter[: len(final)]:
                    final.pop()
                if not final:
                    return []
        self._word = word[sum(num_bytes for _, num_bytes in final) :]
        return [token for token, _ in final]


def _byte_chars(text: bytes) -> str:
    return text.decode("latin-1").translate(_UNPRINTABLE)

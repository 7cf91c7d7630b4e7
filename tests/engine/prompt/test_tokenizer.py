import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.engine.checkpoint.folders import BUILTIN_VOICE_DIR
from sonorant.engine.errors import CheckpointError
from sonorant.engine.prompt.tokenizer import CONTEXT_CHARS, SPLIT_PATTERN, Tokenizer, TokenStream
from tests.allocated import allocated_bytes
from tests.engine.prompt.texts import FRAGMENTS, cut_texts, texts

GOLDENS = json.loads(Path(__file__).with_name("golden_token_ids.json").read_text(encoding="utf-8"))
SENTENCE = "She said, after all, that she'd be here by noon, and we will wait for her till then. "


def pushed(stream: TokenStream, pieces: list[str]) -> list[int]:
    return [token for piece in pieces for token in stream.push(piece)] + stream.end()


@pytest.mark.parametrize("case", GOLDENS["assistant"] + GOLDENS["ref"], ids=lambda case: case["text"])
def test_ids_are_those_of_the_official_processor(tokenizer: Tokenizer, case: dict[str, object]) -> None:
    text, ids = str(case["text"]), case["ids"]
    assert isinstance(ids, list)
    end = ids.index(151645)  # <|im_end|>
    assert tokenizer.encode(text) == ids[3:end]
    assert ids[2] == tokenizer.newline_id
    assert pushed(TokenStream(tokenizer), list(text)) == ids[3:end]


def test_control_tokens_are_plain_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|im_end|><tts_pad>")
    assert max(ids) < 151643
    assert len(ids) > 2


@given(pieces=cut_texts())
@settings(max_examples=200)
def test_any_cutting_gives_the_ids_of_the_whole(
    tokenizer: Tokenizer, small_tokenizer: Tokenizer, pieces: list[str]
) -> None:
    text = "".join(pieces)
    for each in (tokenizer, small_tokenizer):
        whole = each.encode(text)
        assert pushed(TokenStream(each), pieces) == whole
        assert pushed(TokenStream(each), list(text)) == whole
        assert pushed(TokenStream(each), [text]) == whole


@given(
    words=st.lists(
        st.sampled_from(["aa", "ab", "b", "其实", "我真的", "です", "が", "lo", "..", "'l", " "]), max_size=60
    )
)
def test_long_words_are_cut_right(tokenizer: Tokenizer, small_tokenizer: Tokenizer, words: list[str]) -> None:
    for each in (tokenizer, small_tokenizer):
        assert pushed(TokenStream(each), words) == each.encode("".join(words))


@given(text=texts)
def test_outer_whitespace_does_not_matter(small_tokenizer: Tokenizer, text: str) -> None:
    assert small_tokenizer.encode(f" \n\t{text}\u3000\x1c\n") == small_tokenizer.encode(text.strip())


@given(start=texts, more=st.sampled_from(FRAGMENTS))
@settings(max_examples=200)
def test_the_end_of_a_pre_token_grows_as_the_pre_token(tokenizer: Tokenizer, start: str, more: str) -> None:
    pieces = tokenizer.split(start)
    if not pieces or pieces[-1][-1].isspace():
        return
    piece, context = pieces[-1], pieces[-1][-CONTEXT_CHARS:]
    grown = tokenizer.split(context + more)
    assert grown[0].startswith(context)
    assert tokenizer.split(start + more) == [*pieces[:-1], piece + grown[0][len(context) :], *grown[1:]]


def test_a_word_is_released_when_it_is_over(tokenizer: Tokenizer) -> None:
    stream = TokenStream(tokenizer)
    assert stream.push("Hello ") == tokenizer.encode("Hello")
    assert stream.push("world") == []
    assert stream.push("!") == tokenizer.encode("Hello world")[1:]
    assert stream.end() == tokenizer.encode("!")


def test_word_by_word_at_most_one_word_is_held(tokenizer: Tokenizer) -> None:
    stream, released = TokenStream(tokenizer), 0
    words = SENTENCE.split()
    for count, word in enumerate(words, start=1):
        released += len(stream.push(word + " "))
        before = len(tokenizer.encode(" ".join(words[: count - 1])))
        held_mark = 1 if word[-1] in ",." else 0  # it may be the beginning of ",\n"
        assert released >= len(tokenizer.encode(" ".join(words[:count]))) - held_mark >= before
    assert released + len(stream.end()) == len(tokenizer.encode(SENTENCE))


@pytest.mark.parametrize(
    "text",
    [
        "其实我真的有发现我是一个特别善于观察别人情绪的人今天天气很好我们一起去公园散步吧",
        "私は昨日東京に行きましたがとても楽しかったですまた行きたいです",
    ],
)
def test_text_without_spaces_flows(tokenizer: Tokenizer, text: str) -> None:
    """A clause of such text is one pre-token; its tokens come out all the same, a few characters behind."""
    stream, released = TokenStream(tokenizer), 0
    for count, char in enumerate(text, start=1):
        released += len(stream.push(char))
        assert released >= len(tokenizer.encode(text[: max(0, count - 7)])) - 1


def test_digits_are_released_at_once(tokenizer: Tokenizer) -> None:
    stream = TokenStream(tokenizer)
    assert [stream.push(digit) for digit in "123"] == [tokenizer.encode(digit) for digit in "123"]


def test_flush_releases_all_but_whitespace(tokenizer: Tokenizer) -> None:
    stream = TokenStream(tokenizer)
    assert stream.push("Hello") + stream.flush() == tokenizer.encode("Hello")
    assert stream.push(" ") + stream.flush() == []
    assert stream.push("world") + stream.flush() == tokenizer.encode("Hello world")[1:]
    assert stream.push("s") + stream.end() == tokenizer.encode("s")


@given(pieces=cut_texts())
def test_flush_leaves_nothing_to_say(small_tokenizer: Tokenizer, pieces: list[str]) -> None:
    stream = TokenStream(small_tokenizer)
    for piece in pieces:
        stream.push(piece)
        stream.flush()
        assert stream.end() == []


@pytest.mark.parametrize("text", ["", " ", "\n\u3000"])
def test_nothing_to_say(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode(text) == pushed(TokenStream(tokenizer), [text]) == []


@pytest.mark.parametrize("unit", ["a", "我", ".", "=", "\n", "e\u0301", "\u0301", "Hello "])
def test_work_is_linear_and_memory_bounded(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, unit: str) -> None:
    """4 k characters, one by one: quadratic work would be 8 million encoded bytes."""
    num_encoded = num_looks = 0
    encode_word, begins_longer_token = tokenizer.encode_word, tokenizer.begins_longer_token

    def counted_encode(word: str) -> list[tuple[int, int]]:
        nonlocal num_encoded
        num_encoded += len(word)
        return encode_word(word)

    def counted_look(chars: str) -> bool:
        nonlocal num_looks
        num_looks += 1
        return begins_longer_token(chars)

    monkeypatch.setattr(tokenizer, "encode_word", counted_encode)
    monkeypatch.setattr(tokenizer, "begins_longer_token", counted_look)
    text = "x" + unit * (4096 // len(unit)) + "x"
    stream = TokenStream(tokenizer)
    ids = []
    longest_held = 0
    for char in text:
        ids += stream.push(char)
        longest_held = max(longest_held, len(stream._word))
    ids += stream.end()
    assert num_encoded < 300 * len(text)
    assert num_looks < 10 * len(text)
    assert ids == tokenizer.encode(text)
    assert longest_held <= 2 * tokenizer.max_token_bytes


def test_words_of_callers_are_not_kept(small_tokenizer: Tokenizer) -> None:
    """8 KB each, if the library keeps 250 letters."""
    before = allocated_bytes()
    for number in range(1000):
        small_tokenizer.encode(f"{number:b}".translate({48: "a", 49: "b"}).rjust(250, "c"))
    assert allocated_bytes() - before < 1_000_000


def test_version_line_of_merges_is_optional(tmp_path: Path, small_tokenizer: Tokenizer) -> None:
    version, merges = (BUILTIN_VOICE_DIR / "merges.txt").read_text(encoding="utf-8").split("\n", 1)
    assert version.startswith("#version")
    (tmp_path / "merges.txt").write_text(merges, encoding="utf-8")
    (tmp_path / "vocab.json").write_bytes((BUILTIN_VOICE_DIR / "vocab.json").read_bytes())
    assert Tokenizer.load(tmp_path).encode(SENTENCE) == small_tokenizer.encode(SENTENCE)


def test_unusable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"vocab.json is missing"):
        Tokenizer.load(tmp_path)
    (tmp_path / "vocab.json").write_text('{"a": 0}', encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"merges.txt is missing"):
        Tokenizer.load(tmp_path)
    (tmp_path / "merges.txt").write_text("a b c d\n", encoding="utf-8")
    with pytest.raises(CheckpointError, match="not a byte-level BPE vocabulary"):
        Tokenizer.load(tmp_path)
    (tmp_path / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    with pytest.raises(CheckpointError, match="lacks 255 of the 256"):
        Tokenizer.load(tmp_path)


def test_split_pattern_is_the_stock_one() -> None:
    from transformers.models.qwen2 import tokenization_qwen2

    assert tokenization_qwen2.PRETOKENIZE_REGEX == SPLIT_PATTERN

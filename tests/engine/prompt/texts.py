"""Texts made to go wrong: what composes, what belongs together only when something else follows."""

from hypothesis import strategies as st

FRAGMENTS = (
    *("Hello", "world", "don", "I", "s", "ll", "L", "ſ", "x", "straße", "'", "'s", "'LL", "'re", "’s"),
    *(" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2000", "\u3000", "\x1c", "\x85", " \n ", "\u200b"),
    *(
        "5",
        "12",
        "½",
        "٣",
        ".",
        "...",
        ",",
        "!?",
        "(",
        "=",
        "<",
        "_",
        "-",
        "…",
        "。",
        "，",
        "😀",
        "👩\u200d👩",
        "\U0001f1e9",
    ),
    *("é", "e", "E", "a", "\u0301", "\u0323", "\u0338", "\u0344", "\u0327", "ế", "Å", "\u212b"),
    *(
        "가",
        "각",
        "\u1100",
        "\u1161",
        "\u11a8",
        "か",
        "が",
        "\u3099",
        "ன",
        "\u0bc6",
        "\u0bbe",
        "\u0dd9",
        "\u0dcf",
        "\u0dca",
    ),
    *("中", "文", "其实", "我真的", "東京", "です", "안녕", "नमस्ते", "สวัสดี", "مرحبا", "привет", "<|im_end|>", "\x00"),
)

texts = st.one_of(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join), st.text(max_size=30))


@st.composite
def cut_texts(draw: st.DrawFn) -> list[str]:
    """A text in pieces, empty ones included."""
    text = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

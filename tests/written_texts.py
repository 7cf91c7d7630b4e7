"""Texts as people and language models write them, made at random: any number of them, the same ones every time."""

import random
from collections.abc import Iterator

WORDS = {
    "chinese": (
        "我们 今天 去 北京 看 朋友 天气 很 好 请 告诉 我 价格 是 多少 謝謝 你 的 幫助 火车 晚点 了 因为 下雪 AI 模型"
    ),
    "english": (
        "we don't know the price I’m sure it's 25 miles away she'll call O'Neil's naïve café e-mail re-send U.S. well"
    ),
    "french": (
        "l'été où nous étions à Noël j'aime le cœur garçon déjà aujourd’hui qu'il peut-être ça œuvre élève 1er n° être"
    ),
    "german": (
        "Straße für größere Übungen äußerst müde Fuß wäre es "
        "ist schön heute Donaudampfschifffahrt z.B. geht's Öl ß weiß"
    ),
    "italian": (
        "perché è così città l'amico un'ora più già può dell'anno caffè virtù po' là sarà libertà ciò né sé E’ oggi"
    ),
    "japanese": (
        "今日は とても いい 天気 です ね カタカナ ﾊﾝｶｸ が ギター を 弾く １２３ 円 東京 へ 行き ます か 々 ヶ月 ー"
    ),
    "korean": (
        "안녕하세요 오늘 날씨가 좋네요 저는 서울에 갑니다 값이 얼마예요 닭볶음탕 읽다 ㅋㅋㅋ 한국어 뷁 있습니다 의"
    ),
    "portuguese": (
        "não você está à às coração ações pão irmã avô três também é só lá português saúde ônibus mãe põe já vêm"
    ),
    "russian": (
        "сегодня мы идём в город ёлка что-нибудь объём Йод цена 25 рублей пожалуйста её подъезд любовь и ы щука"
    ),
    "spanish": (
        "mañana el niño está aquí ¿qué pasó? ¡vámonos! pingüino corazón año más él sí también cigüeña 1.º dónde útil"
    ),
}
# Numbers, prices, addresses and abbreviations, as language models cut them into tokens.
TOKENS = (
    ("It", " is ", "$", "25", ".", "99", " now."),
    ("At ", "10", ":", "30", "."),
    ("See ", "example", ".com", "."),
    ("Python ", "3", ".11", "."),
    ("Dr", ".", " Lee", ",", " 3", ".", "5", "%"),
    ("Yes.", " No.", " e", ".", "g", ".", " this"),
)
_ENDS = (".", ".", "!", "?", "...", "…", "。", "？", " – ", ": ", ";", "?!", ")", "”", "»", "\n", "\r\n", "")
_BETWEEN = (" ", " ", " ", " ", ", ", " (", " “", ",  ", "\u00a0", "\u202f", "\u3000", "-", "—", "\n", "\n\n", "\t", "")
_EXTRAS = (
    "3.14", "$25.99", "10:30", "1,000,000", "½", "x²", "٣", "😀", "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "🇩🇪", "é", "ﬁ", "Ａ", "\u200b", "\ufeff", "नमस्ते", "مرحبا", "สวัสดี", "𝐇𝐢", "\xad", "<|im_end|>",
    "http://a.b/c?d=é", "C++", "¯\\_(ツ)_/¯", "̣́", "\U0001f3f3\ufe0f\u200d\U0001f308",
)  # fmt: skip
_CODE = (
    "def f(x): return x**2  # é", "if (a && b) { return *p; }", "SELECT * FROM t WHERE a_b = 'c';",
    "<div class=\"x\">&amp;</div>", "$ git push --force && echo \"done\"", "\tx[i] += 1;",
    "{\"a\": [1, 2.5, null]}",
)  # fmt: skip


def text_in(language: str, chance: random.Random) -> str:
    """Return a text of one to some thirty words, with what people put between them."""
    words = WORDS[language].split()
    parts: list[str] = []
    for _ in range(chance.choice((1, 3, 8, 20, 30))):
        parts += [chance.choice(_EXTRAS) if chance.random() < 0.06 else chance.choice(words), chance.choice(_BETWEEN)]
        if chance.random() < 0.15:
            parts[-1] = chance.choice(_ENDS) + " "
    return "".join(parts) + chance.choice(_ENDS)


def texts(count: int) -> Iterator[str]:
    """Yield texts in ten languages by turns."""
    chance = random.Random(35)
    for number in range(count):
        yield text_in(list(WORDS)[number % len(WORDS)], chance)


def lines(count: int) -> Iterator[str]:
    """Yield lines of answers of language models: markdown, code, lists, tables, emoji, several scripts."""
    chance = random.Random(36)
    while count > 0:
        block = _block(chance)[:count]
        count -= len(block)
        yield from block


def _block(chance: random.Random) -> list[str]:
    def some() -> str:
        said = " ".join(text_in(chance.choice(list(WORDS)), chance).split())
        mark = chance.choice(("", "", "", "**", "*", "`", "__", "~~", "***"))
        return f"{said} {mark}{chance.choice(WORDS['english'].split())}{mark} {said[:20]}"

    match chance.randrange(8):
        case 0:
            return ["#" * chance.randint(1, 6) + " " + some(), ""]
        case 1:
            return [f"{chance.choice('-*+')} {chance.choice(('', '[x] ', '**'))}{some()}" for _ in range(3)]
        case 2:
            return [f"{number}. {some()}" for number in range(1, 4)]
        case 3:
            fence = chance.choice(("```", "```python", "~~~", "````"))
            return [fence, *chance.choices(_CODE, k=3), *([fence.rstrip("python")] if chance.random() < 0.9 else [])]
        case 4:
            return [f"| {some()} | {chance.choice(_CODE[:3])} |", "|---|:-:|", f"|{some()}| 😀 |"]
        case 5:
            return [f"> {some()}", f"[{some()}](https://a.b/c_(d)) &amp; <br>{some()}[^1]", f"[^1]: {some()}"]
        case _:
            return [some(), some(), ""]

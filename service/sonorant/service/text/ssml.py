"""SSML: says its text, with pauses, substitutions and spelled words; drops what has no counterpart here. Pure.

It is read while it is written, so nothing waits for the end of an element. Bounded: tags, attributes and nesting.
docs/text.md has a table of what is served.
"""

import html
import unicodedata
from collections.abc import Mapping

import regex

from sonorant.service.errors import InvalidField
from sonorant.service.text.checks import is_speakable
from sonorant.service.text.markup import Manner, Markup, ReadingPlace, Said
from sonorant.service.text.phones import respelled
from sonorant.service.text.sentences import ends_sentence

MAX_DEPTH = 32
MAX_BREAK_MS = 5000
PARAGRAPH_MS = 500
SLOWEST, FASTEST = 0.5, 2.0  # times as fast as usual
_STRENGTHS_MS = {"none": 0, "x-weak": 100, "weak": 200, "medium": 400, "strong": 700, "x-strong": 1000}

_TEXT = regex.compile(r"[^<&]+")
_ENTITY = regex.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")  # those of HTML, too
_ATTRIBUTE = r"""\s{1,64}[A-Za-z_][\w.:-]{0,63}\s{0,8}=\s{0,8}(?:"[^"<]{0,1024}"|'[^'<]{0,1024}')"""
_TAG = regex.compile(
    rf"<(?P<close>/)?(?P<name>[A-Za-z_][\w.:-]{{0,63}})(?P<attributes>(?:{_ATTRIBUTE}){{0,16}})\s{{0,64}}(?P<empty>/)?>"
)
_ATTRIBUTES = regex.compile(r"""([\w.:-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_UNSAID = regex.compile(r"<!--(?:[^-]|-(?!->)){0,4096}-->|<\?[^>]{0,1024}>|<![A-Z][^>\[]{0,1024}>")
_CDATA = regex.compile(r"<!\[CDATA\[(?P<text>[^\]]{0,4096})\]\]>")
_TIME = regex.compile(r"(?P<number>\d{1,6}(?:\.\d{0,6})?|\.\d{1,6})\s*(?P<unit>ms|s)")
_SPELLED = {"characters": "characters", "spell-out": "characters", "verbatim": "characters", "digits": "digits",
            "telephone": "telephone"}  # fmt: skip
_VOLUMES_DB = {"silent": -96.0, "x-soft": -12.0, "soft": -6.0, "medium": 0.0, "default": 0.0, "loud": 6.0,
               "x-loud": 12.0}  # fmt: skip
_DECIBELS = regex.compile(r"[+-]?\d{1,3}(?:\.\d{0,3})?dB", regex.IGNORECASE)
_RATES = {"x-slow": 0.5, "slow": 0.64, "medium": 1.0, "default": 1.0, "fast": 1.55, "x-fast": 2.0}
_SHARE = regex.compile(r"(?P<sign>[+-](?=.*%))?(?P<number>\d{1,3}(?:\.\d{0,3})?)(?P<percent>%)?")
_PLAIN = frozenset(("speak", "p", "s"))
_HIDDEN = "hidden"  # how the text inside of `sub` is read


class Ssml(Markup):
    def __init__(self, is_english: bool) -> None:
        super().__init__()
        self._is_english = is_english
        # Elements, how their text is read ("" = as it is), and the manner around them.
        self._open: list[tuple[str, str, Manner]] = []
        self._said = ""  # the last of what was said
        self._is_silent = True  # whether nothing was said since the last pause
        self._spelled = ""  # between the last spelled character and the next

    def _step(self, at: ReadingPlace) -> Said:
        said = self._read(at)
        self._said = (self._said + said.text)[-16:]
        if is_speakable(said.text):
            self._is_silent = False
        if said.pause_ms:
            if self._is_silent:  # pauses do not add up
                return Said(said.num_written, said.text)
            self._is_silent, self._said = True, ""
        return said

    def _read(self, at: ReadingPlace) -> Said:
        if at.char == "<":
            return self._markup(at.growing())
        if at.char == "&":
            entity = at.match(_ENTITY)
            return self._text("&" if entity is None else _unescaped(entity[0]), 1 if entity is None else len(entity[0]))
        mode = self._open[-1][1] if self._open else ""
        if mode in ("", _HIDDEN):
            found = at.match(_TEXT)
            assert found is not None, "it is neither < nor &"
            return self._text(found[0], len(found[0]))
        return self._text(at.char, 1)

    def _text(self, text: str, num_written: int) -> Said:
        mode = self._open[-1][1] if self._open else ""
        if mode == _HIDDEN:
            return Said(num_written)
        return Said(num_written, self._spell(text, mode) if mode else text.replace("\n", " "))

    def _spell(self, text: str, mode: str) -> str:
        """Say each character by itself."""
        given = ""
        for char in text:
            is_said = char.isalnum() or (char == "+" if mode == "telephone" else not char.isspace())
            if is_said:
                given += self._spelled + char
                self._spelled = " "
            elif mode == "telephone" and self._spelled:
                self._spelled = ", "
        return given

    def _markup(self, at: ReadingPlace) -> Said:
        if (tag := at.match(_TAG)) is not None:
            return self._close(tag) if tag["close"] else self._begin(tag)
        if (unsaid := at.match(_UNSAID)) is not None:
            return Said(len(unsaid[0]))
        if (data := at.match(_CDATA)) is not None:
            return self._text(data["text"], len(data[0]))
        if at.text[at.position + 1 : at.position + 2].isspace():
            return Said(1, "<")
        begin = at.text[at.position : at.position + 24]
        raise InvalidField("text", f'{begin!r} begins no tag of SSML; write "&lt;" for the sign', "SSML_INVALID")

    def _begin(self, tag: "regex.Match[str]") -> Said:
        name = tag["name"].rpartition(":")[2].lower()
        values = {
            key.lower(): _unescaped(double or single) for key, double, single in _ATTRIBUTES.findall(tag["attributes"])
        }
        num_written, mode = len(tag[0]), self._open[-1][1] if self._open else ""
        is_hidden = mode == _HIDDEN
        said = Said(num_written)
        if name == "break":
            said = Said(num_written, "" if is_hidden else " ", 0 if is_hidden else self._break_ms(values))
        elif name == "sub" and "alias" in values:
            said = said if is_hidden else Said(num_written, values["alias"])
            mode = _HIDDEN
        elif name == "say-as":
            asked = values.get("interpret-as", "")
            mode, self._spelled = mode or _SPELLED.get(asked, ""), ""
            if asked not in _SPELLED:
                self.ignored[f"say-as {asked}".strip()] = None
        elif name == "phoneme" and self._is_english and (spoken := _respelled(values)):
            said = said if is_hidden else Said(num_written, spoken)
            mode = _HIDDEN
        elif name in ("p", "s") and not is_hidden and self._said and not self._said[-1].isspace():
            said = Said(num_written, ". " if self._said[-1].isalnum() else " ")
        elif name not in _PLAIN and name != "prosody":
            self.ignored[name] = None
        if not tag["empty"] and name != "break":
            if len(self._open) >= MAX_DEPTH:
                raise InvalidField("text", f"more than {MAX_DEPTH} elements of SSML within each other", "SSML_INVALID")
            self._open.append((name, mode, self.manner))
            if name == "prosody":
                self.manner = self._in_prosody(values)
        return said

    def _close(self, tag: "regex.Match[str]") -> Said:
        name, num_written = tag["name"].rpartition(":")[2].lower(), len(tag[0])
        if name not in (each for each, _, _ in self._open):
            return Said(num_written)
        closed = ""
        while closed != name:
            closed, _, self.manner = self._open.pop()
        if name not in ("p", "s"):
            return Said(num_written)
        said = self._said.rstrip()
        mark = "" if not said or ends_sentence(said) else "."
        return Said(num_written, f"{mark} ", PARAGRAPH_MS if name == "p" else 0)

    def _in_prosody(self, values: dict[str, str]) -> Manner:
        gain_db, speed = self.manner.gain_db, self.manner.speed
        if (volume := values.pop("volume", "").strip()) in _VOLUMES_DB:
            gain_db = _VOLUMES_DB[volume]
        elif _DECIBELS.fullmatch(volume):
            gain_db += float(volume[:-2])
        elif volume:
            self.ignored["prosody volume"] = None
        if rate := values.pop("rate", "").strip():
            if (times := _times(rate, speed)) is None:
                self.ignored["prosody rate"] = None
            else:
                speed = min(max(times, SLOWEST), FASTEST)
        self.ignored.update((f"prosody {key}", None) for key in values)
        return Manner(gain_db, speed)

    def _break_ms(self, values: dict[str, str]) -> int:
        if (time := _TIME.fullmatch(values.get("time", ""))) is not None:
            return min(MAX_BREAK_MS, round(float(time["number"]) * (1 if time["unit"] == "ms" else 1000)))
        if "time" in values:
            self.ignored["break time"] = None
        return _STRENGTHS_MS.get(values.get("strength", ""), _STRENGTHS_MS["medium"])


def _respelled(values: Mapping[str, str]) -> str:
    return respelled(values.get("alphabet", "ipa"), values.get("ph", ""))


def _times(rate: str, around: float) -> float | None:
    """Return how many times as fast as usual a rate is; None if it is none. `around`: the rate of what is around it."""
    if rate in _RATES:
        return _RATES[rate]
    if (share := _SHARE.fullmatch(rate)) is None:
        return None
    times = float(share["number"]) / (100 if share["percent"] else 1)
    if not share["sign"]:
        return times
    return around * (1 + times if share["sign"] == "+" else 1 - times)


def _unescaped(text: str) -> str:
    """Return the text that entities stand for, without control characters."""
    return "".join(" " if unicodedata.category(char) == "Cc" else char for char in html.unescape(text))

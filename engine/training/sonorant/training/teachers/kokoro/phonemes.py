"""Text as Kokoro's phones, with the characters that each phone belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass

from sonorant.training.teachers.kokoro.modules import MAX_TOKENS
from sonorant.training.teachers.speech import NASAL, PAUSE, PHONES

SPACE, STRESS, SENTENCE_ENDS = " ", "ˈˌː", ".!?…"
AFTER = "ː" + NASAL  # marks of the phone before them
AHEAD_S = 0.045  # by how much sounds come before their phones' times, as an aligner hears them
_PHONE_IDS: Mapping[str, int] = {phone: index for index, phone in enumerate(PHONES) if len(phone.rstrip(NASAL)) == 1}


@dataclass(frozen=True, slots=True)
class Word:
    begin: int  # characters of the text
    end: int
    phones: str  # a word's, or punctuation, which Kokoro knows as well

    @property
    def is_spoken(self) -> bool:
        return any(phone in _PHONE_IDS for phone in self.phones)


Spelling = tuple[Word, ...]


def chunks(spelling: Spelling, max_phones: int) -> list[Spelling] | None:
    """Split a long text where sentences end, into parts that Kokoro can speak; None if a sentence is too long."""
    sentences: list[list[Word]] = [[]]
    ended = False
    for word in spelling:
        if ended and word.is_spoken:  # punctuation goes with the words before it
            sentences.append([])
            ended = False
        sentences[-1].append(word)
        ended = (ended or word.phones[-1] in SENTENCE_ENDS) and any(w.is_spoken for w in sentences[-1])
    parts: list[list[Word]] = []
    for sentence in sentences:
        if parts and len(spoken_line([*parts[-1], *sentence])) <= max_phones:
            parts[-1] += sentence
        else:
            parts.append(sentence)
    if any(len(spoken_line(part)) > MAX_TOKENS for part in parts):
        return None
    return [tuple(part) for part in parts]


def spoken_line(words: Spelling | list[Word]) -> str:
    """The phones as Kokoro takes them: words with spaces between, punctuation where it stands."""
    line, end = "", None
    for word in words:
        line += (SPACE if end is not None and word.begin > end else "") + word.phones
        end = word.end
    return line


def phones_of(words: Spelling, durations_s: list[float]) -> tuple[list[int], list[float], list[tuple[int, int] | None]]:
    """Phones, their ends and their words' characters. `durations_s`: of the pause at the start, of every character of
    the line, of the pause at the end. A mark of stress or length lasts as a part of a phone beside it; a space as a
    part of the phone after it, whose sound begins there."""
    ids, ends_s = [PAUSE], [durations_s[0]]
    spans: list[tuple[int, int] | None] = [None]
    at, end = 1, None
    for word in words:
        characters = (SPACE if end is not None and word.begin > end else "") + word.phones
        end = word.end
        pending_s = 0.0
        for character in characters:
            duration_s = durations_s[at]
            at += 1
            if character in AFTER and len(ids) > 1:
                ends_s[-1] += duration_s
                ids[-1] = _PHONE_IDS.get(PHONES[ids[-1]] + character, ids[-1])
                continue
            if character in STRESS or character == SPACE:
                pending_s += duration_s
                continue
            phone = _PHONE_IDS.get(character, PAUSE)
            ids.append(phone)
            ends_s.append(ends_s[-1] + pending_s + duration_s)
            spans.append((word.begin, word.end) if phone != PAUSE else None)
            pending_s = 0.0
        ends_s[-1] += pending_s
    ids.append(PAUSE)
    ends_s.append(ends_s[-1] + durations_s[at])
    spans.append(None)
    last = max(i for i, phone in enumerate(ids) if phone != PAUSE)  # it keeps its end, so that it can fade away
    ends_s[:last] = [max(0.0, end_s - AHEAD_S) for end_s in ends_s[:last]]
    return ids, ends_s, spans

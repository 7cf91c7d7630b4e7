"""Pieces of text in which numbers and what is written in short meet, and what the model is given for a text."""

from collections.abc import Sequence

from sonorant.engine.prompt.words_stream import WordsStream

PARTS = [
    *",.:$%-",
    "0",
    "7",
    "12",
    "250",
    "1987",
    "555",
    "0199",
    "k",
    "m",
    "st",
    "th",
    "s",
    "pm",
    "million",
    "hens",
    "TV",
    "A",
    "So",
    *("a.m", "e.g.", "etc.", "St.", "May", "Jan.", "/", "euro ", " km/h", " degrees C", "IT", "v", "@", "x"),
    *("31", "12", "3", "/", "/", "3/31/24", "31/3/2024", "30/30/24", "'", '"', "Mon", "-Fri", "US$", " 04", "plus "),
    *("Louis", " XIV", "V", "N.", " Elm", " Main St. Then", " x ", "mg", "cent", ".org", "yen ", "for ", "30s"),
    *(".5", "code 4417", ", CA", "lbs"),
    *("https: ", "www.", "II", "War ", "No.", "U.S.", "mail.com", "notes.txt", "The", " Ma", "example", "py", ".", "I"),
    *("BA", " 245", " - ", "Thurs", "Monday", "Wed,", "on ", "4.5/5", "01.10.2010", " equals ", "a.m.", "A320", "9/11"),
]


def read(text: str, cuts: Sequence[int] = (), language: str | None = "english") -> tuple[str, Sequence[int]]:
    stream, given, given_ends = WordsStream(language), "", list[int]()
    for begin, end in zip((0, *cuts), (*cuts, len(text)), strict=True):
        more, ends = stream.push(text[begin:end], range(begin + 1, end + 1), is_last=end == len(text))
        given, given_ends = given + more, [*given_ends, *ends]
    return given, given_ends

"""Numbers, times, dates and prices as people write them, in digits and in words."""

import random

ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["_", "_", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
UNITS = [
    "miles",
    "pages",
    "people",
    "dollars",
    "books",
    "degrees",
    "minutes",
    "hours",
    "days",
    "pounds",
    "feet",
    "seconds",
    "points",
    "years",
    "students",
]


def in_words(number: int) -> str:
    if number < 20:
        return ONES[number]
    if number < 100:
        return TENS[number // 10] + (f" {ONES[number % 10]}" if number % 10 else "")
    for size, name in ((1_000_000, "million"), (1000, "thousand"), (100, "hundred")):
        if number >= size:
            rest = number % size
            return f"{in_words(number // size)} {name}" + (f" {in_words(rest)}" if rest else "")
    raise ValueError(f"cannot say {number}")


def number_words(rng: random.Random, form: str | None = None) -> str:
    return in_words(_magnitude(rng))


def number_digits(rng: random.Random, form: str | None = None) -> str:
    return str(_magnitude(rng))


def time_digits(rng: random.Random, form: str | None = None) -> str:
    minutes = rng.choice((rng.randrange(60), rng.randrange(0, 60, 5)))
    return f"{rng.randint(1, 12)}:{minutes:02d}" + rng.choice(("", "", " a.m.", " p.m."))


def price(rng: random.Random) -> str:
    cents = rng.choice((rng.randrange(100), 99, 50, 95))
    return rng.choice((f"${rng.randint(1, 200)}.{cents:02d}", f"${_magnitude(rng)}"))


def date(rng: random.Random) -> str:
    month, day, year = rng.choice(MONTHS), rng.randint(1, 31), rng.randint(1700, 2050)
    return rng.choice((f"{month} {day}", f"{month} {day}, {year}", f"{month} {year}", f"{year}"))


def number_sentence(rng: random.Random) -> str:
    a, b = rng.randint(0, 120), rng.randint(1, 120)
    digits, words, time = number_digits(rng), number_words(rng), time_digits(rng)
    distance = f"{rng.randint(1, 30)}.{rng.randrange(10)} {rng.choice(('miles', 'kilometers'))}"
    ordinal = rng.choice(("first", "second", "third", "4th", "21st", "12th", "fifth", "last"))
    return rng.choice(
        (
            f"It costs {price(rng)}.",
            f"The total is {price(rng)}, please.",
            f"The train leaves at {time_digits(rng)}.",
            f"Meet me at {time_digits(rng)} on {date(rng)}.",
            f"It is {time_digits(rng)} now.",
            f"The store opens at {time_digits(rng)} and closes at {time_digits(rng)}.",
            f"He was born on {date(rng)}.",
            f"On {date(rng)}, the city had {digits} people.",
            f"In {rng.randint(1500, 2050)}, {words} {rng.choice(UNITS)} were counted.",
            f"The answer is {rng.choice((digits, words))}.",
            f"Please call {' '.join(rng.choice(ONES[:10]) for _ in range(rng.randint(3, 7)))}.",
            f"My number is {' '.join(str(rng.randrange(10)) for _ in range(rng.randint(3, 7)))}.",
            f"{a} plus {b} is {a + b}.",
            f"{in_words(a)} times {in_words(b)} is {in_words(a * b)}.".capitalize(),
            f"Chapter {rng.randint(1, 60)}, page {rng.randint(1, 900)}.",
            f"Version {rng.randint(0, 20)}.{rng.randrange(20)} has {digits} new functions.",
            f"About {rng.randint(1, 100)}% of the {rng.choice(UNITS)} were lost.",
            f"It is {rng.randint(2, 110)} degrees and the wind is {rng.randint(1, 70)} miles per hour.",
            f"She walked {distance} in {words} minutes.",
            f"{digits} {rng.choice(UNITS)} is not {words} {rng.choice(UNITS)}.",
            f"Room {rng.randint(1, 990)} is on floor {rng.randint(1, 40)}.",
            f"Flight {rng.randint(10, 2000)} to gate {rng.choice('ABCDEFG')}{rng.randint(1, 60)} leaves at {time}.",
            f"You have {digits} points and {words} {rng.choice(UNITS)} left.",
            f"The {ordinal} of {rng.choice(MONTHS)}.",
        )
    )


def _magnitude(rng: random.Random) -> int:
    """Small numbers are as common as they are in speech."""
    return int(10 ** rng.uniform(0, 4.6))

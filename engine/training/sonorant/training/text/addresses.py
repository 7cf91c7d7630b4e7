"""Names, titles, streets, mail addresses and telephone numbers, as messages have them."""

import random

from sonorant.training.text.sources import Words

_TITLES = ("Mr.", "Mrs.", "Ms.", "Dr.", "Prof.")
_ROADS = ("Street", "Avenue", "Road", "Lane", "Drive", "Square", "Court", "Way")
_ENDINGS = ("com", "org", "net", "edu")
_ABBREVIATIONS = (
    "NASA",
    "the FBI",
    "the U.S.",
    "the UK",
    "the EU",
    "the BBC",
    "a PDF",
    "a GPS",
    "the CEO",
    "an ID",
    "USB",
    "TV",
)


def address_sentence(words: Words, rng: random.Random) -> str:
    name, other = rng.choice(words.names), rng.choice(words.names)
    common = words.by_size[10]
    host = f"{rng.choice(common)}.{rng.choice(_ENDINGS)}"
    mail = f"{rng.choice((name.lower(), 'info', 'help', 'sales', 'hello'))}@{host}"
    street = f"{rng.randint(1, 999)} {rng.choice((other, rng.choice(common).title()))} {rng.choice(_ROADS)}"
    phone = " ".join(
        "".join(str(rng.randrange(10)) for _ in range(n)) for n in rng.choice(((3, 4), (3, 3, 4), (2, 2, 2)))
    )
    title = rng.choice(_TITLES)
    return rng.choice(
        (
            f"Write to {mail}, please.",
            f"My address is {mail}.",
            f"You will find it at {host}.",
            f"{name} {other} lives at {street}.",
            f"Please send it to {street}.",
            f"{title} {other} will see you now.",
            f"Is {title} {name} {other} at home?",
            f"Call {title} {other} at {phone}.",
            f"The number is {phone}.",
            f"{name}, this is {other}.",
            f"{name} and {other} work for {rng.choice(_ABBREVIATIONS)}.",
            f"It was on {rng.choice(_ABBREVIATIONS)}, e.g. in {rng.randint(1960, 2030)}.",
            f"Ask {name}, {other}, etc.",
        )
    )

"""Spells a word of the International Phonetic Alphabet as English would, for models that read letters. Pure."""

import regex

_SOUNDS = {
    "iː": "ee", "i": "ee", "ɪ": "i", "eɪ": "ay", "ɛ": "e", "e": "e", "æ": "a", "ɑː": "ah", "ɑ": "ah", "a": "ah",
    "ɒ": "o", "ɔː": "aw", "ɔ": "aw", "oʊ": "oh", "əʊ": "oh", "o": "oh", "ʊ": "oo", "uː": "oo", "u": "oo", "ʌ": "u",
    "ə": "uh", "ɜː": "er", "ɝ": "er", "ɚ": "er", "aɪ": "ie", "aʊ": "ow", "ɔɪ": "oy", "juː": "yoo", "ju": "yoo",
    "ɑːɹ": "ar", "ɑːr": "ar", "ɑɹ": "ar", "ɔːɹ": "or", "ɔːr": "or", "ɔɹ": "or", "ɪəɹ": "eer", "ɪə": "eer", "ɪɹ": "eer",
    "eə": "air", "ɛəɹ": "air", "ɛɹ": "air",
    "p": "p", "b": "b", "t": "t", "d": "d", "k": "k", "ɡ": "g", "g": "g", "f": "f", "v": "v", "θ": "th", "ð": "th",
    "s": "s", "z": "z", "ʃ": "sh", "ʒ": "zh", "tʃ": "ch", "dʒ": "j", "h": "h", "m": "m", "n": "n", "ŋ": "ng", "l": "l",
    "ɫ": "l", "ɹ": "r", "r": "r", "ɾ": "t", "j": "y", "w": "w", "x": "kh", "ʔ": "", "ˈ": "", "ˌ": "", ".": "", " ": " ",
    "ː": "", "\u0361": "", "\u0329": "",
}  # fmt: skip
_SOUND = regex.compile("|".join(regex.escape(sound) for sound in sorted(_SOUNDS, key=len, reverse=True)))


def respelled(alphabet: str, phones: str) -> str:
    """Return a word as the model is given it, or "" if it is in another alphabet or has sounds that are not known."""
    if alphabet != "ipa" or _SOUND.sub("", phones):
        return ""
    spelled: str = _SOUND.sub(lambda found: _SOUNDS[found[0]], phones.replace("\u0361", ""))
    return spelled

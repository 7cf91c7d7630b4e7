"""Callers with API keys: the keys, the metadata that carries one, and their table in the file of keys."""

import hashlib

ADA, BOB = "key-of-ada", "key-of-bob"


def bearer(key: str) -> tuple[tuple[str, str]]:
    return (("authorization", f"Bearer {key}"),)


def table(name: str, key: str, limits: str = "") -> str:
    return f'[{name}]\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\n{limits}\n'

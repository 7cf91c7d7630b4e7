"""The key that signs receipts, which servers share so that each knows what the others have issued."""

import secrets
from pathlib import Path

MIN_KEY_BYTES = 32
MAX_KEY_BYTES = 4096


class ReceiptKeyError(Exception):
    """The file with the key cannot be used; the message says why."""


def read_key(path: Path | None) -> bytes:
    """Return the key in the file; without a file a new one, which no other server has. Raises ReceiptKeyError."""
    if path is None:
        return secrets.token_bytes(MIN_KEY_BYTES)
    try:
        with path.open("rb") as file:
            key = file.read(MAX_KEY_BYTES).strip()
    except OSError as error:
        raise ReceiptKeyError(f"cannot read the key of receipts in {path}: {error.strerror}") from error
    if len(key) < MIN_KEY_BYTES:
        raise ReceiptKeyError(
            f"{path} has {len(key)} bytes; a key of receipts has at least {MIN_KEY_BYTES}: "
            f"head -c 32 /dev/urandom | base64 > {path}"
        )
    return key

"""Settings and key files with bytes changed: each is used, or refused with a message for whoever wrote it."""

import contextlib
import io
import random
from pathlib import Path

from sonorant.service.access.api_keys import ApiKeys, ApiKeysError
from sonorant.service.config import parse_args
from tests.fuzz.bytes import mutated

SETTINGS = b"""\
num_slots = 16
seed = 7
[talker]
credit_frames = 32
[code2wav]
chunk_ramp = [1, 2, 4]
dtype = "float32"
[service]
listen = "127.0.0.1:50051"
max_sessions = 200
drain_grace_s = 2.5
open_services = "health,reflection"
[[models]]
model = "builtin_voice"
[models.talker]
num_pages = 64
"""
KEYS = b"""\
[agent]
sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
max_sessions = 20
max_text_chars_per_minute = 20000
voices = ["serena", "ada"]
[other]
sha256 = "3cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
"""
REFUSED = 2  # the exit status


def read_changed_files(folder: Path, rng: random.Random) -> int:
    """One of each; returns how many."""
    settings, keys = folder / "settings.toml", folder / "keys.toml"
    settings.write_bytes(mutated(SETTINGS, rng))
    keys.write_bytes(mutated(KEYS, rng))
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parse_args(["--config", str(settings)], {})
    except SystemExit as ended:
        assert ended.code == REFUSED and "error:" in said.getvalue(), settings.read_bytes()
    with contextlib.suppress(ApiKeysError):
        ApiKeys(keys).find("guess")
    return 2

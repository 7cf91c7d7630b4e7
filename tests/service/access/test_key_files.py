"""Files of API keys: what is refused, and that no fault in one lets somebody in."""

import hashlib
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.service.access.api_keys import MAX_FILE_BYTES, ApiKeys, ApiKeysError, new_key
from tests.service.keys import ADA, BOB, table


def reloaded(path: Path, text: str | None) -> ApiKeys:
    """The keys of ada and bob, and then what the file was changed to."""
    path.write_text(table("ada", ADA, "max_sessions = 3") + table("bob", BOB))
    keys = ApiKeys(path)
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    keys.reload()
    return keys


def test_a_faulty_file_never_widens_access(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    hidden = "".join(f"# {line}\n" for line in table("ada", ADA).splitlines())
    for text, known in (
        ("x = " + "[" * 5000 + "]" * 5000, ""),  # which used to end the server
        ("x = " + "[" * 5000 + "]" * 5000 + "\n" + table("bob", BOB), "bob"),
        ("[ada\n" + table("bob", BOB), "bob"),  # no TOML, and ada's sha256 is gone
        ("[ada\n" + hidden + table("bob", BOB), "bob"),
        (table("ada", ADA, "max_sessions = 0") + table("bob", BOB), "ada bob"),
        (table("ada", ADA.upper(), "max_sessions = 0") + table("bob", BOB), "bob"),
        (table("ada", ADA) + table("eve", ADA) + table("bob", BOB), "ada bob"),  # whose key is it? as before
        (table("new", "new") + table("eve", "eve", "x = 1") + table("bob", BOB), "bob new"),
        ("\n", ""),
        (None, "ada bob"),  # perhaps it is just being replaced
        ("\xff", ""),
        ("#" * (MAX_FILE_BYTES + 1), "ada bob"),
    ):
        keys = reloaded(path, text)
        assert keys.fault, text
        found = {caller.name for key in (ADA, BOB, "new", "eve", ADA.upper()) if (caller := keys.find(key))}
        assert found == set(known.split()), text
        if text and "max_sessions = 0" in text and "ada" in found:
            ada = keys.find(ADA)
            assert ada is not None and ada.max_sessions == 3, "its limits are those before"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ApiKeysError, match="not a regular file"):
        ApiKeys(path)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(table("ada", ADA), encoding="utf-8-sig")  # as on Windows
    assert ApiKeys(tmp_path / "keys.toml").find(ADA) is not None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 400), st.sampled_from(["", "[", '"', "\n", "#", "0", "]"])), max_size=4))
def test_no_fault_lets_somebody_in_who_is_not_in_the_file(edits: list[tuple[int, str]]) -> None:
    """Whatever is typed into the file: who may call has a sha256 there, and never more than before or than it says."""
    with tempfile.TemporaryDirectory() as folder:
        text = table("ada", ADA, "max_sessions = 2") + table("eve", "eve")
        for position, typed in edits:
            text = text[:position] + typed + text[position + (not typed) :]
        keys = reloaded(Path(folder) / "keys.toml", text)
        for key in (ADA, BOB, "eve"):
            if keys.find(key):
                assert hashlib.sha256(key.encode()).hexdigest() in text
        assert keys.find("x") is None


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "new-key"),
        ("[ada", "not TOML"),
        ('sha256 = "x"', "each caller needs a table"),
        ('[ada]\nsha256 = "abc"', "64 hex digits"),
        (table("ada", ADA) + table("bob", ADA), "twice"),
        (table("ada", ADA, "max_sesions = 1"), "max_sesions"),
        (table("ada", ADA, "max_sessions = 0"), "at least 1"),
        (table("ada", ADA, "max_text_chars = true"), "at least 1"),
        (table("ada", ADA, "max_text_chars_per_minute = 1.5"), "at least 1"),
        (table("ada", ADA, "max_voices = -1"), "at least 0"),
        (table("ada", ADA, "voices = []"), "list of voice ids"),
    ],
)
def test_bad_key_files_are_refused_with_what_to_do(text: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(ApiKeysError, match=hint):
        ApiKeys(path)
    with pytest.raises(ApiKeysError, match="cannot read"):
        ApiKeys(tmp_path / "missing.toml")


def test_a_new_key_and_its_table_belong_together(tmp_path: Path) -> None:
    key, entry = new_key("agent")
    (tmp_path / "keys.toml").write_text(entry)
    caller = ApiKeys(tmp_path / "keys.toml").find(key)
    assert caller is not None
    assert caller.name == "agent"
    assert key not in entry
    with pytest.raises(ApiKeysError, match="letters"):
        new_key("a b")

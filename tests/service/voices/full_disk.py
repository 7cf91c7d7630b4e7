"""Fills the file system of a folder with voices, and looks at what happens. Run in a small file system of its own.

python -m tests.service.voices.full_disk FOLDER
"""

import sys
from contextlib import closing
from pathlib import Path

from sonorant.service.errors import VoiceStoreFailed
from sonorant.service.voices.file import unpack
from sonorant.service.voices.folder import FILES, RESERVE
from sonorant.service.voices.sqlite_store import VoiceRegistry
from tests.full_disk import fill
from tests.service.voice_values import ROOMY, file_of


def main(place: str) -> None:
    folder, stuffing = Path(place) / "voices", Path(place) / "stuffing"
    kept = set()
    with closing(VoiceRegistry(folder)) as registry:
        for number in range(2000):
            about, _ = unpack(file_of(number))
            try:
                registry.add("", about, file_of(number), None, ROOMY)
            except VoiceStoreFailed:
                break
            kept.add(about.voice_id)
        else:
            raise AssertionError("the disk was never full")
        fill(stuffing)
        assert registry.check() == (len(kept), [])
        names = {path.name for path in (folder / FILES).iterdir()}
        assert len(names) == len(kept), "the voice that had no room left something"
        for voice_id in sorted(kept)[:40]:  # more than the reserve has room for: what is deleted makes room
            fill(stuffing)
            assert registry.remove("", voice_id)
            kept.remove(voice_id)
            assert registry.find("", voice_id) is None
            assert len(list((folder / FILES).iterdir())) == len(kept)
    fill(stuffing)
    with closing(VoiceRegistry(folder)) as registry:  # what the reserve is for, too
        assert registry.remove("", min(kept))
        kept.remove(min(kept))
    (folder / RESERVE).unlink()
    fill(stuffing)
    try:
        VoiceRegistry(folder)
        raise AssertionError("it could be opened without room")
    except VoiceStoreFailed as error:
        assert "is full" in str(error) and "Free some space" in str(error), error
    stuffing.unlink()
    with closing(VoiceRegistry(folder)) as registry:
        assert registry.check() == (len(kept), [])
        assert {each.voice.about.voice_id for each in registry.everything()} == kept
    print("survived")


if __name__ == "__main__":
    main(*sys.argv[1:])

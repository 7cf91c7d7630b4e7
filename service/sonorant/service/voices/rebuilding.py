"""`sonorant-server voices rebuild DIR`: makes the rows of voices whose files are there, but not in the database.

For a database that was lost, or replaced by an older one. It neither changes nor deletes a file, and may be repeated.
"""

from dataclasses import dataclass, field

from sonorant.service.errors import VoiceStoreFailed
from sonorant.service.voices.file import NotAVoiceFile, VoiceAbout, unpack
from sonorant.service.voices.folder import owner_in
from sonorant.service.voices.sqlite_store import VoiceRegistry


@dataclass(slots=True)
class Rebuilt:
    num_added: int = 0
    left: list[str] = field(default_factory=list)  # one sentence per file that is still without a row

    def __str__(self) -> str:
        return f"{self.num_added} voices added, {len(self.left)} files left as they are"


def rebuild(registry: VoiceRegistry, owner: str | None) -> Rebuilt:
    """`owner`: of files whose names say none, as it was too long for them. Raises VoiceStoreFailed."""
    done = Rebuilt()
    found: list[tuple[str, str, VoiceAbout]] = []
    for name in registry.unlisted():
        whose = owner_in(name)
        whose = owner if whose is None else whose
        try:
            about, _ = unpack(registry.read(name))
        except (NotAVoiceFile, VoiceStoreFailed) as error:
            done.left.append(f"{name}: {error}")
            continue
        if whose is None:
            done.left.append(
                f"{name}: voice {about.voice_id!r}, and the file does not say of which key; give it with --owner NAME "
                '("" on a server without keys)'
            )
        else:
            found.append((name, whose, about))
    for name, whose, about in sorted(found, key=lambda each: -each[2].create_s):  # the newest of an id is the voice
        if registry.adopt(whose, name, about):
            done.num_added += 1
        else:
            done.left.append(f"{name}: {whose!r} has another voice {about.voice_id!r} already")
    return done

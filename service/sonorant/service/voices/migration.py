"""`sonorant-server voices migrate SOURCE TARGET`: copies voices and dictionaries of all owners to another
store.

It may be interrupted and repeated: voices that are in the target already are left alone. Nobody should create voices
meanwhile.
"""

from dataclasses import dataclass, field

from sonorant.service.errors import VoiceDamaged, VoiceExists
from sonorant.service.voices import dictionary_table as table
from sonorant.service.voices.store import VoiceLimits, VoiceStore

_NO_LIMITS = VoiceLimits(2**62, 2**62, 2**62)


@dataclass(slots=True)
class Migration:
    num_copied: int = 0
    num_there: int = 0
    left: list[str] = field(default_factory=list)  # one sentence per voice that could not be copied

    def __str__(self) -> str:
        return f"{self.num_copied} voices copied, {self.num_there} were there already, {len(self.left)} left behind"


def migrate(source: VoiceStore, target: VoiceStore) -> Migration:
    """Copy all voices and dictionaries. Raises VoiceStoreFailed."""
    done = Migration()
    dictionaries = source.run(table.everything, writes=False)
    target.run(lambda execute: table.copy(execute, dictionaries), writes=True)
    for owned in source.everything():
        owner, about = owned.owner, owned.voice.about
        name = f"{about.voice_id!r} of {owner!r}"
        there = target.find(owner, about.voice_id)
        if there is not None and there.file_digest == owned.voice.file_digest:
            done.num_there += 1
            continue
        try:
            data = source.load(owned.voice)
            if data is not None:
                target.add(owner, about, data, owned.request, _NO_LIMITS)
                done.num_copied += 1
        except VoiceDamaged as error:
            done.left.append(f"{name}: {error}")
        except VoiceExists:
            done.left.append(f"{name}: the target has another voice with this id; delete one of the two")
    return done

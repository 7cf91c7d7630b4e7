"""How long a chunk can wait for more frames, by how long talker and decoder took lately. Pure."""

# A listener keeps this part of a frame in hand when the next chunk comes, against delays on its way.
RESERVE = 0.5

DECAY = 0.8  # per step of the talker and per call, of the longest time that is remembered


class Pace:
    def __init__(self, frame_s: float) -> None:
        self._frame_s = frame_s
        self._step_s = 0.0  # the longest of the talker's last steps
        self._call_s = 0.0  # the longest of the decoder's last calls

    @property
    def margin_s(self) -> float:
        """A listener who runs dry by then cannot wait for one more frame: it would be made, then decoded and sent.

        A step that takes longer than a frame lasts is not waited for: the listener would run dry in any case.
        """
        return min(self._step_s, self._frame_s) + self._call_s + RESERVE * self._frame_s

    def note_step(self, took_s: float) -> None:
        self._step_s = max(took_s, DECAY * self._step_s)

    def note_call(self, took_s: float) -> None:
        self._call_s = max(took_s, DECAY * self._call_s)

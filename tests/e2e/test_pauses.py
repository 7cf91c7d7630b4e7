"""A pause between two sentences of a real voice, and how it begins after one."""

from typing import Any

import numpy as np

from sonorant.tts.v1 import speak_pb2
from tests.service.harness import assert_same_audio, end, say, speak


async def test_a_pause_changes_nothing_of_the_speech_around_it(stub: Any) -> None:
    heard = []
    for pause_ms in (0, 400):
        settings = speak_pb2.SpeakConfig(synthesis={"sampling": {"seed": 7}}, max_lead_ms=0)
        flush = speak_pb2.SpeakRequest(flush={"flush_id": 1, "pause_ms": pause_ms})
        transcript = await speak(stub, [settings, say("Hello. "), flush, say("Again.")])
        flush_done = next(r.flush_done for r in transcript.responses if r.HasField("flush_done"))
        heard.append((transcript.pcm["u1"], (flush_done.audio_ms - pause_ms) * 48))
    (plain, border), (paused, same_border) = heard
    assert border == same_border
    after = border + 400 * 48
    assert paused[border:after] == bytes(after - border)
    assert_same_audio(paused[:border] + paused[after:], plain)


async def test_it_goes_on_as_quietly_as_it_stopped_and_rises_within_a_second(stub: Any) -> None:
    settings = speak_pb2.SpeakConfig(synthesis={"sampling": {"seed": 7}}, max_lead_ms=0)
    flush = speak_pb2.SpeakRequest(flush={"flush_id": 1})
    alone = (await speak(stub, [settings, say("Nobody knows it yet."), end()])).pcm["u1"]
    both = await speak(stub, [settings, say("Hello. "), flush, say("Nobody knows it yet."), end()])
    border = next(r.flush_done for r in both.responses if r.HasField("flush_done")).audio_ms * 48
    own, later = (np.frombuffer(pcm, np.int16).astype(float) for pcm in (alone, both.pcm["u1"][border:]))
    assert len(own) == len(later)
    changes_db = [
        10 * np.log10(np.mean(later[at : at + 2400] ** 2) / np.mean(own[at : at + 2400] ** 2))
        for at in range(2400, len(own) - 4800, 2400)
    ]
    assert -2.2 < changes_db[0] < -1.6 and changes_db[:8] == sorted(changes_db[:8])
    assert changes_db[9:] == [0.0] * len(changes_db[9:])

"""Makes kept clones ready when the server has started: the workers decode their recordings now, and keep the state
behind them as long as they have places for it. So the first call need not wait for that."""

import logging
from collections import Counter
from dataclasses import replace

from sonorant.engine import EngineError, EnginePool, PcmChunk, SynthesisParams
from sonorant.service.errors import RequestError
from sonorant.service.voices.choice import VoiceChoice, VoiceChooser
from sonorant.service.voices.stored import StoredVoices

log = logging.getLogger(__name__)

TEXT = "a"


async def warm_up(stored: StoredVoices, voices: VoiceChooser, engine: EnginePool) -> None:
    """Have one frame spoken with each kept clone, newest first, as many as the workers keep. Live streams go first.
    Raises VoiceStoreFailed."""
    left = Counter({info.fingerprint: info.kept_references for info in engine.infos})
    num_ready = 0
    for voice in await stored.clones():
        if left[voice.about.fingerprint] <= 0:
            continue
        left[voice.about.fingerprint] -= 1
        try:
            await _speak(voices.kept(voice.about, await stored.tensors(voice), "voice"), engine)
            num_ready += 1
        except (RequestError, EngineError) as error:
            log.warning("the kept voice %r is not ready: %s", voice.about.voice_id, error)
    if num_ready:
        log.info("%d kept voices are ready", num_ready)


async def _speak(choice: VoiceChoice, engine: EnginePool) -> None:
    params = SynthesisParams(
        replace(choice.info.default_sampling, min_frames=1, max_frames=1),
        x_vector=choice.x_vector,
        reference_codes=choice.reference_codes,
        reference_text=choice.transcript,
        checkpoint=choice.info.fingerprint,
    )
    async with engine.open(params, background=True) as stream:
        stream.push_text(TEXT)
        stream.end_text()
        while isinstance(await stream.next_event(), PcmChunk):
            pass

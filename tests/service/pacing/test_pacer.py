"""When audio may go out."""

from sonorant.service.audio.writer import AudioSpec
from sonorant.service.pacing.pacer import Pacer, Playout
from sonorant.tts.v1.audio_pb2 import AUDIO_ENCODING_PCM_S16LE
from tests.service.fake_engine import FakeEngine

LEAD_MS, PIECE_MS = 50, 7


async def test_no_piece_goes_out_before_the_lead_allows_it() -> None:
    """Not even by the millisecond by which a timer may be early."""
    playout = Playout()
    pacer = Pacer(playout, LEAD_MS, AudioSpec(AUDIO_ENCODING_PCM_S16LE, 24_000, 20), FakeEngine().info)
    for _ in range(30):
        await pacer.wait(PIECE_MS)
        assert playout.wait_s(PIECE_MS, LEAD_MS) == 0
        playout.sent("u1", PIECE_MS)

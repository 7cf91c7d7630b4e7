"""How far times marks are off, as a table: `python -m tests.measure.mark_error` (needs pocketsphinx).

The built-in voice speaks sentences, pocketsphinx aligns the words with the audio, and the starts of the words it finds
are taken for true (it is exact to about 30 ms). Sentences that it cannot align are left out.
"""

import numpy as np
import soxr
from pocketsphinx import Decoder

from sonorant.engine.offline import synthesize
from sonorant.service.audio.pcm import Samples
from sonorant.service.speak.word_times import WordTimes
from tests.measure.front_end_cost import FRAME_S

RATE_HZ = 24_000
ALIGN_RATE_HZ = 16_000
FRAME = round(RATE_HZ * FRAME_S)
SENTENCES = """Hello, how are you today?
The train to London leaves in twenty minutes from the second platform.
I think we should meet again next week, if that is all right.
The weather is fine today, but there may be rain tomorrow evening.
Your order has been sent, and it should arrive on Monday morning.
Can you tell me the number of your account?
No, I am sorry, that is not possible at the moment.
First open the door, then turn on the light, and then sit down.
She said that the water was too cold to swim in.
It is a long way from here to the nearest station.
The file could not be opened, because it does not exist.
Thank you very much for your call.
When the sun comes up, the birds begin to sing in the garden.
We have three rooms left, and all of them have a view of the sea.
The old man walked slowly down the street with his dog.
If you want to change your password, press the button on the left.
Good morning, this is the office of the doctor.
Remember to bring the papers with you when you come.
The price of the book is a little higher than last year.
Yes, of course, I can do that for you right now.
This is a short test of the system, which should not take long.""".splitlines()
# How far the engine is ahead of what is sent, in seconds; None = its end is never known in time.
CASES = (("the whole segment is made", 60.0), ("made 3 s ahead", 3.0), ("made 1 s ahead", 1.0), ("end not known", 0.0))


def true_starts_ms(text: str, samples: Samples) -> list[int] | None:
    decoder = Decoder(samprate=ALIGN_RATE_HZ, loglevel="FATAL")
    words = "".join(c if c.isalpha() else " " for c in text.lower()).split()
    decoder.set_align_text(" ".join(words))
    decoder.start_utt()
    decoder.process_raw(soxr.resample(samples, RATE_HZ, ALIGN_RATE_HZ).astype(np.int16).tobytes(), full_utt=True)
    decoder.end_utt()
    found = [segment for segment in decoder.seg() or () if segment.word[0] not in "<("]
    return [segment.start_frame * 10 for segment in found] if len(found) == len(words) else None


def told_starts_ms(text: str, samples: Samples, ahead_s: float) -> list[int]:
    times = WordTimes(RATE_HZ, 1.0)
    times.push_text(text)
    times.end_text()
    starts, made = [], 0
    for sent in range(FRAME, len(samples) + FRAME, FRAME):
        while made < min(len(samples), max(sent, sent + round(ahead_s * RATE_HZ))):
            times.push_audio(samples[made : made + FRAME])
            made += FRAME
            if made >= len(samples) and ahead_s:
                times.end_audio()
        starts += [word.start_ms for word in times.tell(min(sent, len(samples)) * 1000 / RATE_HZ)]
    return starts


def main() -> None:
    errors: dict[str, list[int]] = {name: [] for name, _ in CASES}
    num_words = num_sentences = 0
    for text in SENTENCES:
        samples = (np.clip(synthesize(text).samples, -1, 1) * 32767).astype(np.int16)
        true_ms = true_starts_ms(text, samples)
        if true_ms is None:
            continue
        num_sentences += 1
        num_words += len(true_ms)
        for name, ahead_s in CASES:
            told_ms = told_starts_ms(text, samples, ahead_s)
            errors[name] += [abs(told - true) for told, true in zip(told_ms, true_ms, strict=False)]
    print(f"{num_words} words of {num_sentences} sentences")
    print(f"{'marks sent when':<28} {'mean ms':>8} {'p50':>5} {'p95':>5} {'untold':>7}")
    for name, values in errors.items():
        p50, p95 = np.percentile(values, (50, 95))
        print(f"{name:<28} {np.mean(values):>8.0f} {p50:>5.0f} {p95:>5.0f} {num_words - len(values):>7}")


if __name__ == "__main__":
    main()

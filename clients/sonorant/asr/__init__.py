"""Live speech recognition into speech: which recognized words may be spoken, and when; see docs/asr.md."""

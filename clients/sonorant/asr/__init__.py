"""Speaks live speech recognition: decides which recognized words may be spoken, and when; see docs/asr.md."""

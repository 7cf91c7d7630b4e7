"""Scales a teacher's 16-bit samples for the codec."""

PEAK = 0.9  # of full scale: the teacher's peak, with room for the decoder to overshoot

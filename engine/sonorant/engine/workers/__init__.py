"""The worker processes of one pair and what they need: rings, MPS, cards, settings that are found. No torch."""

"""The worker processes of one pair and what they need: rings, MPS, cards, settings that are found. No torch.

`judge.py` finds the stream that is to blame for their death, of whichever server process it is.
"""

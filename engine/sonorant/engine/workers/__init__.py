"""The worker processes of one pair and what they need: rings, MPS, cards, settings that are found. No torch.

Which stream is to blame for their death is judged in `sonorant.engine.owner.judge`.
"""

"""The languages that a checkpoint can be trained to speak: their names, and the places of their ids in the codec table.

The places are those of the published checkpoints, counted from the first id that is no code.
"""

from collections.abc import Mapping

LANGUAGES: Mapping[str, int] = {"english": 50, "spanish": 54, "french": 61, "italian": 70, "portuguese": 71}
AUTO = "auto"  # the model hears by the text which language it is

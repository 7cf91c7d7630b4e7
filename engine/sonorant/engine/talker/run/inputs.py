"""Makes the talker's input rows for prompts, in plain torch operations."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sonorant.engine.model.talker import Talker
from sonorant.engine.talker.schedule.rows import PrefillRow
from sonorant.engine.types import NO_ID, REFERENCE_FRAME, X_VECTOR

# Row counts are multiples of this: the CPU's matrix product gives a row the same bits in any batch only from 4 rows on.
ROW_MULTIPLE = 4


def prompt_inputs(talker: Talker, rows: Sequence[PrefillRow]) -> Tensor:
    """Inputs of all prompt rows one after the other, [rows, hidden], with zero rows up to a ROW_MULTIPLE."""
    text_ids = [id for row in rows for id in row.plan.text_ids[row.start : row.stop]]
    codec_items = [item for row in rows for item in row.plan.codec_items[row.start : row.stop]]
    padding = [NO_ID] * (-len(text_ids) % ROW_MULTIPLE)
    device = talker.codec_head.weight.device
    x = talker.embed_text(ints([*text_ids, *padding], device)) + talker.embed_codec(
        ints([*codec_items, *padding], device)
    )
    _add_voices(x, talker, rows)
    return x


def _add_voices(x: Tensor, talker: Talker, rows: Sequence[PrefillRow]) -> None:
    """Add the codec parts that are no ids of the codec table: speaker embeddings and reference frames."""
    first = 0
    for row in rows:
        items = np.array(row.plan.codec_items[row.start : row.stop])
        if row.x_vector is not None and (at := np.flatnonzero(items == X_VECTOR)).size:
            x[ints(first + at, x.device)] += torch.from_numpy(row.x_vector).to(x)
        if row.reference_codes is not None and (at := np.flatnonzero(items <= REFERENCE_FRAME)).size:
            codes = row.reference_codes[REFERENCE_FRAME - items[at]].astype(np.int64)
            x[ints(first + at, x.device)] += talker.embed_frames(ints(codes, x.device))
        first += len(items)


def ints(values: Sequence[object] | np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(np.asarray(values, np.int64)).to(device)

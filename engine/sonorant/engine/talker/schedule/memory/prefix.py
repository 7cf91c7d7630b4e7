"""Keys of the pages that a prompt fills, by which prompts with the same beginning share them. No torch, no pages."""

from hashlib import blake2b

import numpy as np

from sonorant.engine.types import REFERENCE_FRAME, X_VECTOR, Float32Array, Int16Array, PromptPlan

KEY_BYTES = 16


def page_keys(
    plan: PromptPlan, x_vector: Float32Array | None, codes: Int16Array | None, page_size: int
) -> tuple[bytes, ...]:
    """Return a key for each page that is full of prompt rows.

    Pages with equal keys have equal rows, from the first row of the prompt to the page's last. So they hold equal keys
    and values of attention, as a row depends only on those before it. The ids do not determine a row alone: the speaker
    embedding [hidden] and frames [frames, codebooks] are part of the keys, too.
    """
    if plan.num_rows < page_size:
        return ()
    rows = np.array([plan.text_ids, plan.codec_items], np.int64).T
    keys = []
    key = b""
    for stop in range(page_size, plan.num_rows + 1, page_size):
        page = rows[stop - page_size : stop]
        digest = blake2b(key, digest_size=KEY_BYTES)
        digest.update(page.tobytes())
        items = page[:, 1]
        if x_vector is not None and X_VECTOR in items:
            digest.update(x_vector.tobytes())
        if codes is not None:
            digest.update(codes[REFERENCE_FRAME - items[items <= REFERENCE_FRAME]].tobytes())
        key = digest.digest()
        keys.append(key)
    return tuple(keys)

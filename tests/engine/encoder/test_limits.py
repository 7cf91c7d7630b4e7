import resource

import numpy as np
import pytest

from engine.encoder.limits import memory_limit


def test_memory_beyond_the_limit_is_refused_and_comes_back() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory_limit(64 * 1024 * 1024):
        np.zeros(16 * 1024 * 1024, np.uint8)
        with pytest.raises(MemoryError):
            np.zeros(512 * 1024 * 1024, np.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    np.zeros(512 * 1024 * 1024, np.uint8)

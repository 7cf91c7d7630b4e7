"""What is told at the end, on machines that have the client alone."""

import subprocess
import sys

import numpy as np
import pytest

from sonorant.asr.report import summary


@pytest.mark.parametrize("delays_ms", [[120.0], [120.0, 240.0], [float(ms) for ms in range(0, 1000, 7)]])
def test_percentiles_are_those_of_numpy(delays_ms: list[float]) -> None:
    p50, p95 = np.percentile(delays_ms, [50, 95])
    told = summary([ms / 1000 for ms in delays_ms], 0, None, 1.0)[1]
    assert (
        f"{np.mean(delays_ms):.0f} ms added per word, p50 {p50:.0f}, p95 {p95:.0f}, longest {max(delays_ms):.0f}"
        in told
    )


def test_hypotheses_of_another_recognizer_need_no_numpy() -> None:
    program = "import sys; sys.modules['numpy'] = None; import sonorant.asr.main"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

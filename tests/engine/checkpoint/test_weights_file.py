import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sonorant.engine.checkpoint.weights_file import SAMPLE_BYTES, add_samples, read_row
from sonorant.engine.errors import CheckpointError

MATRIX = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "model.safetensors"
    return file


def digest(path: Path) -> str:
    hash = hashlib.sha256()
    add_samples(path, hash)
    return hash.hexdigest()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rows_of_every_floating_point_type(path: Path, dtype: torch.dtype) -> None:
    matrix = MATRIX.to(dtype)
    save_file({"other": torch.zeros(3, dtype=dtype), "m": matrix}, path, {"format": "pt"})
    for row in range(5):
        np.testing.assert_array_equal(read_row(path, "m", row), matrix[row].float().numpy())


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [("missing", 0, "no matrix missing"), ("vector", 0, "no matrix vector"), ("ids", 0, "no matrix ids")]
    + [("m", row, f"no row {row}") for row in (-1, 5)],
)
def test_what_is_not_there(path: Path, name: str, row: int, message: str) -> None:
    save_file({"m": MATRIX, "vector": MATRIX[0].clone(), "ids": torch.zeros(2, 2, dtype=torch.int64)}, path)
    with pytest.raises(CheckpointError, match=message):
        read_row(path, name, row)


@pytest.mark.parametrize(
    "data",
    [None, b"", b"\xff" * 8]
    + [
        len(header).to_bytes(8, "little") + header
        for header in (
            *(
                b"{]",
                b"[]",
                b'"m"',
                b"null",
                b"\xff",
                b'{"m": {}}',
                b'{"m": []}',
                b'{"m": {"dtype": [], "shape": [2, 2]}}',
            ),
            b'{"m": {"dtype": "F32", "shape": 2}}',
            b'{"m": {"dtype": "F32", "shape": ["2", 2]}}',
            b'{"m": {"dtype": "F32", "shape": [2, 2], "data_offsets": []}}',
            b'{"m": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}',
        )
    ],
)
def test_files_that_are_none(path: Path, data: bytes | None) -> None:
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(CheckpointError, match="is missing" if data is None else "not a whole safetensors file"):
        read_row(path, "m", 0)


def test_a_digest_tells_weights_apart(path: Path) -> None:
    save_file({"m": MATRIX}, path)
    before = digest(path)
    assert digest(path) == before
    changed = MATRIX.clone()
    changed[4, 6] += 1
    save_file({"m": changed}, path)
    assert digest(path) != before


def test_large_files_are_sampled(path: Path) -> None:
    matrix = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(0))
    save_file({"m": matrix}, path)
    before = digest(path)
    for row in (0, 1023):
        changed = matrix.clone()
        changed[row] += 1
        save_file({"m": changed}, path)
        assert digest(path) != before
    assert path.stat().st_size > 16 * SAMPLE_BYTES

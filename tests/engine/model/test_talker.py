"""The talker's inputs."""

from pathlib import Path

import pytest
import torch

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.model import talker as talker_module
from sonorant.engine.model.talker import Talker
from sonorant.engine.model.weights import TensorFile, load_module
from tests.tiny_checkpoint import write_tiny_checkpoint


@torch.inference_mode()
@pytest.mark.parametrize("text_hidden", [24, 32])  # 32: as wide as the talker, so that the table is overwritten
def test_a_folded_text_projection_gives_the_same_inputs(
    text_hidden: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talker_module, "FOLDED_AT_ONCE", 100)
    checkpoint = load_checkpoint(write_tiny_checkpoint(tmp_path, text_hidden=text_hidden))
    with torch.device("meta"):
        talker = Talker(checkpoint)
    file = TensorFile(checkpoint.folder / "model.safetensors")
    load_module(talker, file, "talker.", torch.device("cpu"), torch.float32)
    ids = torch.arange(-1, len(talker.model.text_embedding.weight))
    before = talker.embed_text(ids)
    talker.fold_text_projection()
    torch.testing.assert_close(talker.embed_text(ids), before)
    assert torch.equal(before[0], torch.zeros(32))

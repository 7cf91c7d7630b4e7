import shutil
from dataclasses import replace
from pathlib import Path

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.fingerprint import fingerprint
from sonorant.engine.config import EngineConfig
from tests.tiny_checkpoint import write_tiny_checkpoint


def of(folder: Path, **config: object) -> str:
    return fingerprint(load_checkpoint(folder), replace(EngineConfig(model=folder), **config))


def test_it_tells_weights_apart_and_not_folders(tmp_path: Path) -> None:
    one = write_tiny_checkpoint(tmp_path / "one", "base")
    other_weights = write_tiny_checkpoint(tmp_path / "two", "base", seed=1)
    other_task = write_tiny_checkpoint(tmp_path / "three", "custom_voice")
    other_codec = Path(shutil.copytree(one, tmp_path / "four"))
    shutil.copy(other_weights / "speech_tokenizer/model.safetensors", other_codec / "speech_tokenizer")
    renamed = Path(shutil.copytree(one, tmp_path / "five"))
    assert of(one) == of(renamed)
    assert len({of(folder) for folder in (one, other_weights, other_task, other_codec)}) == 4


def test_random_weights_have_one_by_their_seed(tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path, "base")
    prints = {of(folder), of(folder, load_format="dummy"), of(folder, load_format="dummy", seed=1)}
    assert len(prints) == 3
    assert all(len(each) == 16 for each in prints)

"""Deferred modules are loaded when something of them is asked for, once, and workers of CPU builds need none."""

import importlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from sonorant.engine.ipc.deferred import defer

MODELS = """
import sys, sonorant.engine.preloaded, torch
from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import resolve_model
from sonorant.engine.config import EngineConfig
from sonorant.engine.model.memory import code2wav_need, encoder_need, talker_need
from sonorant.engine.model.rounded import INT8
from sonorant.engine.model.weights import init_random
for name in ("0.6b-base", "1.7b-customvoice"):
    checkpoint = load_checkpoint(resolve_model(f"qwen3-tts-12hz-{name}"))
    config = EngineConfig.of(checkpoint.folder, num_slots=2)
    talker_need(checkpoint, config, rounding=INT8), code2wav_need(checkpoint, config), encoder_need(checkpoint, config)
init_random(torch.nn.Linear(2, 2), torch.device("cpu"), torch.float32, seed=0)
from sonorant.engine.ipc.deferred import UNUSED_OF_TORCH
modules = [sys.modules[name] for name in UNUSED_OF_TORCH if name in sys.modules]
print([module.__name__ for module in modules if "__getattr__" not in vars(module)])
"""


def test_a_module_is_loaded_once_something_of_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (package := tmp_path / "late").mkdir()
    (package / "__init__.py").write_text("print('loaded')\nVALUE = 1\n")
    (package / "part.py").write_text("VALUE = 2\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    defer("late", "no.such.module")
    try:
        late = importlib.import_module("late")
        assert importlib.import_module("late") is late
        assert importlib.import_module("late.part").VALUE == 2
        assert not hasattr(late, "__all__")
        assert capsys.readouterr().out == ""
        assert late.VALUE == 1 and late.VALUE == 1
        assert capsys.readouterr().out == "loaded\n"
        with pytest.raises(AttributeError):
            late.MISSING  # noqa: B018
    finally:
        for name in ("late", "late.part"):
            sys.modules.pop(name, None)


@pytest.mark.slow
@pytest.mark.skipif(not version("torch").endswith("+cpu"), reason="a CUDA build of torch has nothing deferred")
def test_empty_and_random_models_need_nothing_that_is_deferred() -> None:
    done = subprocess.run([sys.executable, "-c", MODELS], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "[]\n"

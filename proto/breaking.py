"""Print what in the protos would break a client of the released contract, which is in released.binpb.

Fields, messages, enum values and RPCs may be added freely. What has been released stays, by the rules of `buf breaking`
for FILE: no name, number, type or cardinality changes, and nothing moves to another file, because stubs are imported by
file. `--release` records the current protos as the released contract, unless they break the last one.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from generate import PROTO_ROOT, run_protoc

RELEASED = PROTO_ROOT / "released.binpb"
OWN_PACKAGE = "sonorant."
_TYPES = FieldDescriptorProto.Type.DESCRIPTOR.values_by_number
_LABELS = FieldDescriptorProto.Label.DESCRIPTOR.values_by_number


def compile_protos() -> FileDescriptorSet:
    """Compile the protos beside this file, with everything that they import, so that `buf` can read the result, too."""
    with tempfile.NamedTemporaryFile(suffix=".binpb") as file:
        run_protoc("--include_imports", f"--descriptor_set_out={file.name}")
        return FileDescriptorSet.FromString(Path(file.name).read_bytes())


def promises(protos: FileDescriptorSet) -> dict[str, str]:
    """Everything that a client can depend on: its place in the protos -> what it is."""
    return {
        f"{file.name}: {where}": what
        for file in protos.file
        if file.package.startswith(OWN_PACKAGE)
        for where, what in _of_file(file)
    }


def _of_file(file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    yield "package", file.package
    for message in file.message_type:
        yield from _of_message(message, message.name)
    for enum in file.enum_type:
        yield from _of_enum(enum, enum.name)
    for service in file.service:
        yield f"service {service.name}", ""
        for method in service.method:
            takes = "stream " * method.client_streaming + method.input_type
            gives = "stream " * method.server_streaming + method.output_type
            yield f"rpc {service.name}.{method.name}", f"{takes} -> {gives}"


def _of_message(message: DescriptorProto, path: str) -> Iterator[tuple[str, str]]:
    yield f"message {path}", ""
    for field in message.field:
        oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
        kind = f"{_LABELS[field.label].name} {_TYPES[field.type].name} {field.type_name}".strip()
        presence = "optional" if field.proto3_optional else oneof and f"oneof {oneof}"
        yield f"field {path}.{field.number}", " ".join(filter(None, (field.name, field.json_name, kind, presence)))
    for nested in message.nested_type:
        yield from _of_message(nested, f"{path}.{nested.name}")
    for enum in message.enum_type:
        yield from _of_enum(enum, f"{path}.{enum.name}")


def _of_enum(enum: EnumDescriptorProto, path: str) -> Iterator[tuple[str, str]]:
    yield f"enum {path}", ""
    for value in enum.value:
        yield f"value {path}.{value.number}", value.name


def breaks(released: FileDescriptorSet, now: FileDescriptorSet) -> list[str]:
    """One line for each promise of `released` that `now` breaks."""
    before, after = promises(released), promises(now)
    lines = []
    for where, what in before.items():
        if where not in after:
            lines.append(f"{where}: gone; it was {what}" if what else f"{where}: gone")
        elif after[where] != what:
            lines.append(f"{where}: was {what}, is {after[where]}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", action="store_true", help="record the current protos as the released contract")
    args = parser.parse_args()
    protos = compile_protos()
    broken = breaks(FileDescriptorSet.FromString(RELEASED.read_bytes()), protos)
    for line in broken:
        print(f"breaks clients: {line}", file=sys.stderr)
    if args.release and not broken:
        RELEASED.write_bytes(protos.SerializeToString(deterministic=True))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

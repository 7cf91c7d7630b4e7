"""The gRPC reference: one Markdown page made of the comments of the .proto files."""

import re
import tempfile
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import google.rpc
from google.protobuf import descriptor_pb2 as pb
from grpc_tools import protoc

PROTO_ROOT = Path(__file__).resolve().parents[2] / "proto"
PACKAGE = "sonorant/tts/v1"
# Numbers of fields in descriptor.proto, of which paths to comments are made.
MESSAGES, ENUMS, SERVICES = 4, 5, 6  # in a file
FIELDS, NESTED, NESTED_ENUMS = 2, 3, 4  # in a message
Type = pb.FieldDescriptorProto.Type
Place = tuple[int, ...]


def page() -> str:
    """Return the page: first the services, then the messages and enums of each file."""
    parsed = _parsed()
    lines = ["# gRPC reference", "", f"Made from the comments in `proto/{PACKAGE}`."]
    for file in sorted(parsed, key=lambda file: not file.service):  # the services first
        lines += _File(file).lines()
    return "\n".join(lines) + "\n"


def _parsed() -> Sequence[pb.FileDescriptorProto]:
    googleapis = Path(next(iter(google.rpc.__path__))).parents[1]
    sources = sorted(str(path.relative_to(PROTO_ROOT)) for path in (PROTO_ROOT / PACKAGE).glob("*.proto"))
    includes = [f"--proto_path={path}" for path in (PROTO_ROOT, googleapis, files("grpc_tools") / "_proto")]
    with tempfile.NamedTemporaryFile() as out:
        status = protoc.main(
            ["protoc", *includes, "--include_source_info", f"--descriptor_set_out={out.name}", *sources]
        )
        if status != 0:
            raise SystemExit(f"protoc failed with status {status}")
        return pb.FileDescriptorSet.FromString(Path(out.name).read_bytes()).file


class _File:
    def __init__(self, file: pb.FileDescriptorProto) -> None:
        self._file = file
        self._comments = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}
        nested = [each for message in file.message_type for each in message.nested_type]
        self._maps = {each.name: each for each in nested if each.options.map_entry}

    def lines(self) -> Iterator[str]:
        yield from ("", f"## {Path(self._file.name).name}")
        for number, service in enumerate(self._file.service):
            place = (SERVICES, number)
            yield from ("", f"### {service.name}", "", self._comment(place))
            for method_number, method in enumerate(service.method):
                asked = ("stream " if method.client_streaming else "") + _linked(method.input_type)
                given = ("stream " if method.server_streaming else "") + _linked(method.output_type)
                yield from ("", f"**{method.name}** ({asked}) → {given}", "")
                yield self._comment((*place, 2, method_number))
        for number, message in enumerate(self._file.message_type):
            yield from self._message(message, (MESSAGES, number), "")
        for number, enum in enumerate(self._file.enum_type):
            yield from self._enum(enum, (ENUMS, number), "")

    def _message(self, message: pb.DescriptorProto, place: Place, outer: str) -> Iterator[str]:
        if message.options.map_entry:
            return
        name = outer + message.name
        yield from ("", f"### {name}", "", self._comment(place))
        if message.field:
            yield from ("", "| field | type | |", "|---|---|---|")
        for number, field in enumerate(message.field):
            text = self._comment((*place, FIELDS, number))
            if field.HasField("oneof_index") and not field.proto3_optional:
                text = f"(one of `{message.oneof_decl[field.oneof_index].name}`) {text}"
            yield f"| `{field.name}` = {field.number} | {self._type(field)} | {text} |"
        for number, nested in enumerate(message.nested_type):
            yield from self._message(nested, (*place, NESTED, number), f"{name}.")
        for number, enum in enumerate(message.enum_type):
            yield from self._enum(enum, (*place, NESTED_ENUMS, number), f"{name}.")

    def _enum(self, enum: pb.EnumDescriptorProto, place: Place, outer: str) -> Iterator[str]:
        yield from ("", f"### {outer}{enum.name}", "", self._comment(place), "", "| value | |", "|---|---|")
        for number, value in enumerate(enum.value):
            yield f"| `{value.name}` = {value.number} | {self._comment((*place, 2, number))} |"

    def _type(self, field: pb.FieldDescriptorProto) -> str:
        if (entry := self._maps.get(field.type_name.rpartition(".")[2])) is not None:
            return f"map of {' to '.join(_type(part) for part in entry.field)}"
        return _type(field)

    def _comment(self, place: Place) -> str:
        """Return the comment as one line of Markdown; only its code spans are formatted."""
        spans = " ".join(self._comments.get(place, "").replace("|", "\\|").split()).split("`")
        return "`".join(
            span if number % 2 else re.sub(r"([*\[\]<_])", r"\\\1", span) for number, span in enumerate(spans)
        )


def _type(field: pb.FieldDescriptorProto) -> str:
    name = _linked(field.type_name) if field.type_name else Type.Name(field.type).removeprefix("TYPE_").lower()
    if field.label == pb.FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {name}"
    return f"optional {name}" if field.proto3_optional else name


def _linked(type_name: str) -> str:
    """Return the name of a type, with a link if it is on this page."""
    own = "." + PACKAGE.replace("/", ".") + "."
    name = type_name.removeprefix(own)
    return f"[{name}](#{name.replace('.', '').lower()})" if type_name.startswith(own) else f"`{name.lstrip('.')}`"

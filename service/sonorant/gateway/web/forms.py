"""Reads forms, url-encoded or in parts, with limits on fields, parts, and their bytes."""

from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from aiohttp import web
from multipart import MultipartError, MultipartSegment, ParserLimitReached, PushMultipartParser, parse_options_header

from sonorant.gateway.errors import Refusal
from sonorant.gateway.web.bodies import read_body, receive

MAX_PARTS = 32
MAX_FIELD_BYTES = 256 * 1024  # an embedding of 2,048 numbers, with all their digits
MAX_ESCAPED = 64 * 1024  # characters of a url-encoded form
_MAX_BOUNDARY_CHARS = 70  # RFC 2046


@dataclass(slots=True)
class Form:
    """What was sent: texts, and one file."""

    fields: dict[str, str] = field(default_factory=dict)
    file: bytes = b""

    def text(self, name: str) -> str:
        return self.fields.get(name, "")


async def read_form(request: web.Request, fields: frozenset[str], file: str, max_file_bytes: int) -> Form:
    """Read these fields, and the file; others are skipped. Raises Refusal."""
    kind, options = parse_options_header(request.headers.get("Content-Type", ""))
    try:
        if kind == "application/x-www-form-urlencoded":
            return _url_encoded(await read_body(request, MAX_FIELD_BYTES), fields)
        if kind == "multipart/form-data":
            limits = dict.fromkeys(fields, MAX_FIELD_BYTES) | {file: max_file_bytes}
            parts = _Parts(_checked(options.get("boundary", "")), limits)
            await receive(request, parts.take)
            return parts.form(file)
    except UnicodeDecodeError:
        raise Refusal(400, "a field of the form is not UTF-8") from None
    except ParserLimitReached as error:
        raise Refusal(413, f"the form is too large: {error}; send at most {MAX_PARTS} parts") from None
    except (ValueError, MultipartError) as error:
        raise Refusal(400, f"what was sent is not a form: {error}") from None
    raise Refusal(400, f"send a form with {', '.join(sorted(fields))}, and the file {file}")


def _url_encoded(data: bytes, fields: frozenset[str]) -> Form:
    if data.count(b"%") > MAX_ESCAPED:
        raise Refusal(413, f"more than {MAX_ESCAPED} escaped characters; send the form as multipart/form-data")
    pairs = parse_qsl(data.decode(), max_num_fields=MAX_PARTS)
    return Form({name: text for name, text in pairs if name in fields})


def _checked(boundary: str) -> str:
    if not 0 < len(boundary) <= _MAX_BOUNDARY_CHARS:
        raise ValueError(f"its Content-Type needs a boundary of 1 to {_MAX_BOUNDARY_CHARS} characters")
    return boundary


class _Parts:
    """Collects the parts of a form while it arrives."""

    def __init__(self, boundary: str, limits: dict[str, int]) -> None:
        """`limits`: of each part that is kept, by its name."""
        self._parser = PushMultipartParser(boundary, max_segment_count=MAX_PARTS)
        self._limits = limits
        self._kept: dict[str, bytearray] = {}
        self._name = ""  # of the part that is arriving

    def take(self, data: bytes) -> None:
        """Raises MultipartError, or Refusal if a part is too large."""
        for event in self._parser.parse(data):
            if isinstance(event, MultipartSegment):
                self._name = event.name or ""
                if self._name in self._limits:
                    self._kept[self._name] = bytearray()
            elif event is not None and self._name in self._limits:
                self._append(event)

    def _append(self, data: bytes) -> None:
        kept, limit = self._kept[self._name], self._limits[self._name]
        if len(kept) + len(data) > limit:
            raise Refusal(413, f"{self._name}: more than {limit} bytes; send less", param=self._name)
        kept += data

    def form(self, file: str) -> Form:
        """The whole form. Raises MultipartError if its end is missing, and UnicodeDecodeError."""
        self._parser.close()
        data = bytes(self._kept.pop(file, b""))
        return Form({name: text.decode() for name, text in self._kept.items()}, data)

"""The Python reference: one page that names what is public; mkdocstrings fills it in from the source."""

import ast
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[2] / "clients" / "sonorant" / "client" / "__init__.py"
MODULES = {"Client without asyncio": "sonorant.client.sync", "Engine without a server": "sonorant.engine.offline"}


def page() -> str:
    """Return the page of all that `sonorant.client` exports, and of the other public modules."""
    imports = [each for each in ast.parse(CLIENT.read_text(encoding="utf-8")).body if isinstance(each, ast.ImportFrom)]
    messages = [name.name for each in imports if "_pb2" in str(each.module) for name in each.names]
    own = sorted(
        f"{each.module}.{name.name}" for each in imports if "_pb2" not in str(each.module) for name in each.names
    )
    lines = [
        "# Python reference",
        "## Client",
        "`from sonorant.client import ...` has all of this, and these messages:",
    ]
    lines.append(", ".join(f"[{name}](grpc.md#{name.lower()})" for name in sorted(messages)))
    lines += [f"::: {name}" for name in sorted(own, key=lambda name: name.rpartition(".")[2].lower())]
    for title, module in MODULES.items():
        lines += [f"## {title}", f"::: {module}"]
    return "\n\n".join(lines)

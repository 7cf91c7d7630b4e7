"""How large folders, files, functions and constructors may be: what is larger cannot be read at once."""

import ast
from collections import Counter
from collections.abc import Iterator

from tests._support import sources

FILE_LINES, FUNCTION_LINES, ARGUMENTS = 410, 60, 6
MODULES = 17  # of a folder
# Bodies of Triton kernels: what they call is compiled into them, and their order is what they are about.
KERNELS = {"_window_attention", "_attend", "_frame", "_choose"}


def functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All that are defined in statements, which takes a fraction of looking at all expressions, too."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        for part in ("body", "orelse", "finalbody"):
            yield from functions(getattr(node, part, []))


def test_files_functions_and_constructors_are_small() -> None:
    too_large = []
    for path, text in sources():
        if (lines := text.count("\n")) > FILE_LINES:
            too_large.append(f"{path}: {lines} lines")
        for node in functions(ast.parse(text).body):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES and not ("kernels" in path.parts and node.name in KERNELS):
                too_large.append(f"{path}:{node.lineno}: {node.name} has {lines} lines")
            num_arguments = len(node.args.args) + len(node.args.kwonlyargs) - 1
            if node.name == "__init__" and num_arguments > ARGUMENTS:
                too_large.append(f"{path}:{node.lineno}: a constructor with {num_arguments} arguments")
    assert not too_large


def test_folders_are_small() -> None:
    modules = Counter(path.parent for path, _ in sources())
    assert {str(folder): count for folder, count in modules.items() if count > MODULES} == {}

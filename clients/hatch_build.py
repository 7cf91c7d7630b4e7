"""Puts the stubs of the contract, which lie in ../proto, into the sdist and the wheel of the client."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Stubs(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        stubs = Path(self.root).parent / "proto" / "sonorant" / "tts"
        # An sdist has them in place already; an editable install finds them through its `dev-mode-dirs`.
        if stubs.exists() and version != "editable":
            build_data["force_include"][str(stubs)] = "sonorant/tts"

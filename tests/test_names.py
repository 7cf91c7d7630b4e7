"""Each class of the programs has a name of its own, so that a name leads to one place."""

import ast
from collections import defaultdict

from tests._support import ROOT, sources

# In C what they are in torch, the server's errors as clients raise them, and the synchronous clients.
SAME = {"CodecEncoder", "CodecState", "Sampling", "Snake", "SpeakerEncoder"} | {"DictionaryNotFound", "VoiceNotFound"}
SAME |= {"Clip", "Session", "SpeechClient"}


def test_each_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for path, text in sources():
        if (ROOT / "clients/examples") in (ROOT / path).parents:
            continue  # programs to copy
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path))
    assert {name: where for name, where in places.items() if len(where) > 1 and name not in SAME} == {}

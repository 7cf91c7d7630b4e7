"""How long each folder is, and how much of it stood at a commit: `python -m tests.measure.lines [--since ca44e8d]`.

Lines of .py, .cu, .cuh, .c, .h and .js under proto, service, engine and clients, with comments and docstrings, without
generated code and training. A line counts as old if `git blame -C` finds it, word for word, in the commit, wherever it
is now; all others came since, or were written anew.
"""

import argparse
import re
import subprocess
from collections import Counter
from pathlib import PurePath

ROOTS = ("proto", "service", "engine", "clients")
SUFFIXES = (".py", ".cu", ".cuh", ".c", ".h", ".js")
NOT_OURS = re.compile(r"_pb2(_grpc)?\.py$|^engine/training/")


def git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--since", default="ca44e8d")
    since = parser.parse_args().since
    new, old = Counter[str](), Counter[str]()
    for path in git("ls-files", *ROOTS):
        if path.endswith(SUFFIXES) and not NOT_OURS.search(path):
            folder = str(PurePath(path).parent)
            for line in git("blame", "-s", "-C", f"{since}..", "--", path):
                (old if line.startswith("^") else new)[folder] += 1
    for folder in sorted(old | new):
        print(f"{old[folder] + new[folder]:6} {old[folder]:6} old {new[folder]:6} new  {folder}")
    print(f"{old.total() + new.total():6} {old.total():6} old {new.total():6} new  in all")


if __name__ == "__main__":
    main()

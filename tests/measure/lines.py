"""How long each folder is, and how much of it stood at a commit: `python -m tests.measure.lines [--since ca44e8d]`.

Lines of .py, .cu, .cuh, .c, .h and .js under proto, service, engine and clients, with comments and docstrings, without
generated code and training. A line counts as old if `git blame -C` finds it, word for word, in the commit, wherever it
is now; all others came since, or were written anew.

`--growth`: for what lines came and went since. Each commit adds some lines and takes others away; the difference counts
for the part of the work that the beginning of its subject names (PARTS). So a line that was moved, or written anew in
place of another, counts as nothing. `--commits` lists the commits of each part.
"""

import argparse
import re
import subprocess
from collections import Counter, defaultdict
from pathlib import PurePath

ROOTS = ("proto", "service", "engine", "clients")
SUFFIXES = (".py", ".cu", ".cuh", ".c", ".h", ".js")
NOT_OURS = re.compile(r"_pb2(_grpc)?\.py$|^engine/training/|^engine/sonorant/engine/training/")
# What the work was for, by how subjects begin; the first that fits counts.
PARTS = {
    "the house: folders, names, walks, fewer lines": r"Move |Names|English|Less|Walks|Folders|Constructors|Functions of"
    r"|Offline|OpenAPI|Status|Settings|Speech and streams|Session: what|Docs|Tests|Measure|Contract"
    r"|Engine: (folders|a server process is|streams to which|plans|one WorkerPair|the judge|weights in float8)"
    r"|Service: (speech is a state|the session handles|properties that|the servicer no|Parts made|the owner imports)"
    r"|Kernels: (products|the three)|Rings|Calls: steps|Streams|Engine, service|Prompt: NFC"
    r"|Segmenter: (the cutter|limits)|CLI and tests|Checkpoint: each key"
    r"|CPU: (the C sources|convolutions have|one attention|the kinds of|a turn of|C functions and)"
    r"|Voices: (one VoiceStore|VoiceStore is|what a file holds)",
    "one topology, admission, hosting": r"Admission|One topology|Hosting|Owner|Supervisor|Server and gateway open"
    r"|Service: (the owner|its processes|a server with API)|Gateway: (its processes|settings also|a few connections)"
    r"|Calls: one FairQueue|Engine: (one pure rule|the board)|Talker: background|IPC|Reservations",
    "texts: markdown, SSML, long texts, words, healing": r"Text|Segmenter|Cutter|Marks|Characters|A finished|Long texts"
    r"|Prompt|Warning|Resum|Service: (the silence|words that|later segments|babble|a server that continues)|Decode"
    r"|Voice:|Service, clients",
    "clients and their command": r"Client|The client|The Python client|A TypeScript|Command line|say|Usage|Recognizers"
    r"|Pipecat|Refused and failed",
    "load and its measurement": r"Bench|Latency",
    "clones, voices, dictionaries, keys": r"Encoder|Voices|Dictionaries|Recordings|API keys|Keys|Checkpoint"
    r"|Weights: what|Engine: (a checkpoint that|encoders and|the built-in)|Metrics",
    "gateway": r"Gateway|Doors|WebSocket",
    "large checkpoints on a CPU": r"CPU|Workers on|Doctor|Speed|Build|Code2Wav: keep its|Engine: on the CPU"
    r"|Talker: a start|Workers: what|Fork server",
    "cards, starts, standbys": r".*",
}


def git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.splitlines()


def is_ours(path: str) -> bool:
    return path.endswith(SUFFIXES) and not NOT_OURS.search(path)


def by_folder(since: str) -> None:
    new, old = Counter[str](), Counter[str]()
    for path in filter(is_ours, git("ls-files", *ROOTS)):
        folder = str(PurePath(path).parent)
        for line in git("blame", "-s", "-C", f"{since}..", "--", path):
            (old if line.startswith("^") else new)[folder] += 1
    for folder in sorted(old | new):
        print(f"{old[folder] + new[folder]:6} {old[folder]:6} old {new[folder]:6} new  {folder}")
    print(f"{old.total() + new.total():6} {old.total():6} old {new.total():6} new  in all")


def growth(since: str, *, lists_commits: bool) -> None:
    parts: dict[str, dict[str, Counter[str]]] = {part: defaultdict(Counter) for part in PARTS}
    subject = ""
    # Without renames: a file that moved is taken away and added.
    for line in git("log", "--no-renames", "--numstat", "--format=@%s", f"{since}..", "--", *ROOTS):
        if line.startswith("@"):
            subject = line[1:]
        elif line and is_ours(line.split("\t")[2]):
            added, deleted, path = line.split("\t")
            part = next(part for part, begins in PARTS.items() if re.match(begins, subject))
            root, *_, folder = PurePath(path).parts[:3]
            parts[part][subject]["gateway" if folder == "gateway" else root] += int(added) - int(deleted)
    columns = (*ROOTS, "gateway")
    print("".join(f"{column:>9}" for column in (*columns, "all")))
    total = Counter[str]()
    for part, commits in parts.items():
        lines = Counter[str]()
        for each in commits.values():
            lines.update(each)  # adds, also what is negative
        total.update(lines)
        print("".join(f"{lines[column]:+9}" for column in columns) + f"{lines.total():+9}  {part}")
        for subject, each in sorted(commits.items(), key=lambda item: -item[1].total()) if lists_commits else ():
            print(f"{each.total():+54}    {subject}")
    print("".join(f"{total[column]:+9}" for column in columns) + f"{total.total():+9}  in all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--since", default="ca44e8d")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--commits", action="store_true")
    args = parser.parse_args()
    if args.growth:
        growth(args.since, lists_commits=args.commits)
    else:
        by_folder(args.since)


if __name__ == "__main__":
    main()

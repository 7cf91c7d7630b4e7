"""The TypeScript client as its package brings it, installed outside the repository: the page's agent speaks, is
interrupted, and continues after its connection was cut."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cutting_proxy import CuttingProxy

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "voice-agent.md").read_text(encoding="utf-8")
MAX_LINES = 45
LONG = "Let me look. It closes at six, and on Sundays it is closed all day long, as ever."
DRIVER = """
import { SpeechClient, type SpeechError, Turn } from "sonorant";
import { reply, type History, type Player } from "./agent.js";

const [target] = process.argv.slice(2);
let playedFrom = Date.now();
let bytes = 0;
let interruptAt = Infinity;
let interrupt = () => {};
let interruptsWhenAllCame = false;
const player: Player = {
  play(pcm) {
    if (bytes === 0) playedFrom = Date.now();
    bytes += pcm.length;
    console.log(JSON.stringify({ bytes }));
    if (bytes > interruptAt) interrupt();
  },
  drop() {
    const played = Math.min(Date.now() - playedFrom, bytes / 48);
    bytes = 0;
    return interruptsWhenAllCame ? 900 : Math.round(played);
  },
  async heard() {
    if (interruptsWhenAllCame) {
      interrupt();
      await new Promise(() => {}); // a player that still plays
    }
    bytes = 0;
  },
};

async function* words(text: string): AsyncGenerator<string> {
  yield "Let me look. ";
  await new Promise((resolve) => setTimeout(resolve, 400)); // a tool runs
  for (const word of text.split(" ")) {
    yield word + " ";
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  if (text === "Oh.") throw new Error("the model failed");
}

let isClosed = false;
async function* endless(): AsyncGenerator<string> {
  try {
    for (;;) {
      yield "and on, ";
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  } finally {
    isClosed = true;
  }
}

const client = new SpeechClient(target);
const clip = await client.synthesize("Hello.");
await client.putDictionary("names", { Nguyen: "win" });
const { version } = await client.putDictionary("names", { Nguyen: "win", SQL: "sequel" });
const phrases = (await client.dictionary("names", 1)).pronunciations;
const named = { dictionaries: [{ dictionaryId: "names" }], sampling: { seed: 7 } };
const respelled = await client.synthesize("The SQL.", named);
const written = await client.synthesize("The sequel.", { sampling: { seed: 7 } });
const listed = (await client.dictionaries()).map((each) => each.dictionaryId);
await client.deleteDictionary("names");
const refused = await client.synthesize("The SQL.", named).then(() => "", (error) => error.message);
const dictionary = { version, phrases, same: respelled.audio.length === written.audio.length, listed, refused };
const history: History = [];
const speak = (who: string, text: string, by = client) =>
  reply(by, player, history, who, words(text), new Promise((resolve) => (interrupt = resolve)));
const why = (error: Error) => error.message;
await speak("agent", "It opens at nine.");
interruptAt = 60_000;
await speak("guide", "It closes at six, and on Sundays it is closed all day long, as ever.");
interruptAt = Infinity;
await speak("agent", "Goodbye.");
await reply(client, player, history, "agent", endless(), Promise.resolve()); // nothing is heard, and nothing noted
while (!isClosed) await new Promise((resolve) => setTimeout(resolve, 10));
const failed = await speak("agent", "Oh.").then(() => "", why);
interruptsWhenAllCame = true;
await speak("agent", "Nobody hears this to its end.");
const nobody = await speak("agent", "Hello.", new SpeechClient("127.0.0.1:1")).then(() => "", why);
const patient = new SpeechClient("127.0.0.1:1", { whenDown: true });
const soon = new Promise<string>((resolve) => setTimeout(() => resolve("still looks for a server"), 300));
const lasting = [patient.synthesize("Hello."), speak("agent", "Hello.", patient)].map((it) => it.then(() => "", why));
const waits = await Promise.race([soon, ...lasting]);
const early = new Turn(client);
early.say("Nobody hears this. ");
const heardEarly = early.cutOff(0); // before any server has answered
for await (const event of early) console.log(JSON.stringify({ bytes: event.payload })); // none
const wrong = { voice: { voiceId: "wrenn" } };
const reason = (error: SpeechError) => [error.reason, error.requestId !== ""];
const misspelt = await client.synthesize("Hello.", wrong).then(() => [], reason);
const told = { history, clip: clip.audio.length, dictionary, failed, nobody, waits, heardEarly, misspelt };
console.log(JSON.stringify(told));
process.exit(0);
"""

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="no Node.js here")


def agent() -> str:
    (found,) = re.findall(r"^```typescript\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def npm(folder: Path, *arguments: str) -> None:
    subprocess.run(["npm", *arguments, "--silent"], cwd=folder, check=True, timeout=200)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project that has installed the package, and the page's agent."""
    checkout, project = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("project")
    leave_out = shutil.ignore_patterns("node_modules", "dist")
    shutil.copytree(ROOT / "clients/typescript", checkout / "clients/typescript", ignore=leave_out)
    shutil.copytree(ROOT / "proto", checkout / "proto")
    package = checkout / "clients/typescript"
    npm(package, "install", "--no-audit")
    npm(package, "pack")  # builds first
    (project / "package.json").write_text('{"name": "agent", "type": "module", "private": true}')
    (tarball,) = package.glob("*.tgz")
    npm(project, "install", "--no-audit", str(tarball), "typescript@5.9", "@types/node@20")
    shutil.rmtree(checkout)
    (project / "agent.ts").write_text(agent())
    (project / "main.ts").write_text(DRIVER)
    options = ["--target", "ES2022", "--module", "NodeNext", "--strict", "--skipLibCheck", "--types", "node"]
    subprocess.run(["npx", "tsc", *options, "main.ts"], cwd=project, check=True, timeout=200)
    yield project


def test_the_agent_has_at_most_forty_five_lines() -> None:
    lines = [line.strip() for line in agent().splitlines()]
    assert len([line for line in lines if line and not line.startswith(("//", "/**"))]) <= MAX_LINES


async def test_the_agent_speaks_is_interrupted_and_survives_a_cut_connection(project: Path, server: str) -> None:
    async with CuttingProxy(int(server.rpartition(":")[2])) as proxy:
        process = await asyncio.create_subprocess_exec(
            *("node", "main.js", f"127.0.0.1:{proxy.port}"),
            cwd=project,
            env=os.environ | {"http_proxy": "http://127.0.0.1:1", "no_proxy": ""},  # which is not for this machine
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        told, num_cuts = {}, 0
        async with asyncio.timeout(200):
            async for line in process.stdout:
                told = json.loads(line)
                assert isinstance(told.get("bytes", 0), int), told
                if num_cuts < 2 and told.get("bytes", 0) > 10_000 * (num_cuts + 1):
                    num_cuts += proxy.cut()
        assert await process.wait() == 0
    first, second, third, fourth, fifth = (message["content"].split() for message in told["history"])
    dictionary = told["dictionary"]
    assert "no dictionary 'names'" in dictionary.pop("refused")
    assert dictionary == {"version": 2, "phrases": {"Nguyen": "win"}, "same": True, "listed": ["names"]}
    assert num_cuts == 2 and told["clip"] > 10_000
    assert " ".join(first) == "Let me look. It opens at nine."
    assert " ".join(third) == "Let me look. Goodbye."
    assert " ".join(fourth) == "Let me look. Oh." and told["failed"] == "the model failed"
    assert " ".join(fifth) in ("Let me", "Let me look.")  # what was heard, although all of it had come
    assert "127.0.0.1:1" in told["nobody"] and "start one with: sonorant-server" in told["nobody"]
    assert told["waits"] == "still looks for a server" and told["misspelt"] == ["VOICE_NOT_FOUND", True]
    assert told["heardEarly"] == {"text": "", "unheard": "Nobody hears this. ", "playedMs": 0}
    assert second and len(second) < 17 and f"{LONG} ".startswith(" ".join(second) + " ")

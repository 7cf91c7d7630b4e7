"""The values that describe a benchmark: load, speech, target and each process's share. They are sent to processes."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sonorant.bench.voices import PRESET, Voices

LoadKind = Literal["closed", "open", "paced"]
Protocol = Literal["speak", "synthesize-stream", "openai", "openai-events", "openai-websocket", "cartesia"]
GRPC: tuple[Protocol, ...] = ("speak", "synthesize-stream")


@dataclass(frozen=True, slots=True)
class Load:
    """
    closed  `amount` speakers, each of which begins its next utterance when the one before is over
    open    `amount` utterances per second begin at random, whatever the server does
    paced   `amount` listeners in sessions of their own, each hearing one utterance after another without a pause
    """

    kind: LoadKind
    amount: float
    seconds: float  # measured time, after the warm-up
    warm_up_s: float

    def __str__(self) -> str:
        return f"{self.kind} {self.amount:g}{'/s' if self.kind == 'open' else ''}"


@dataclass(frozen=True, slots=True)
class SpokenLoad:
    """What is spoken, and how. Utterance n of a load is the n-th text with seed `seed` + n."""

    texts: tuple[str, ...]
    seed: int
    voices: Voices = PRESET
    language: str = ""
    num_frames: int = 0  # exact length in codec frames; 0 = the model decides
    max_lead_ms: int = 0  # 0 = as fast as the server can; never 0 in paced loads
    words_per_s: float = 0.0  # 0 = the whole text at once
    max_wait_ms: int = 0  # for a place in a full server
    batch: bool = False  # of the priority for what nobody listens to


@dataclass(frozen=True, slots=True)
class Target:
    """A server under test."""

    protocol: Protocol
    address: str  # HOST:PORT; but for gRPC the base URL, with /v1
    model: str = ""  # name in requests; not for gRPC
    extra_body: tuple[tuple[str, object], ...] = ()  # more fields of requests; not for gRPC
    num_connections: int = 1  # of each client process; for gRPC only
    keys: tuple[str, ...] = ()  # API keys, shared out over the callers; without any, as the environment says
    tls: bool = False  # for gRPC only, as a URL says so itself; the environment may switch it on, too
    ca: Path | None = None  # PEM of the authority that signed the server's certificate

    def __str__(self) -> str:
        return f"{self.protocol} {self.address}"


@dataclass(frozen=True, slots=True)
class Share:
    """One client process's share of a load: every `num_shares`-th speaker or utterance, from `index` on."""

    target: Target
    load: Load
    speech: SpokenLoad
    timeout_s: float  # per utterance
    max_in_flight: int  # utterances of this process, in an open loop
    index: int
    num_shares: int

    @property
    def keys(self) -> tuple[str, ...]:
        """The API keys of this process's speakers, in turns: the n-th speaker of the whole load has the n-th key, and
        begins again with the first key after the last. So callers have equally many, whatever the processes are."""
        keys = self.target.keys
        num_in_turn = len(keys) // math.gcd(len(keys), self.num_shares)
        return tuple(keys[(self.index + n * self.num_shares) % len(keys)] for n in range(num_in_turn))

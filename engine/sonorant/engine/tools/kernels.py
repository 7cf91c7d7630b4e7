"""Compiles all kernels of worker pairs for a card, on all cores: `python -m sonorant.engine.tools.kernels --help`.

The code goes into Triton's cache folder, where workers find it. No GPU is needed, so an image can be built with it.
"""

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context

from sonorant.engine.card.card import GIB, Card
from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.checkpoint.folders import resolve_model
from sonorant.engine.config import EngineConfig
from sonorant.engine.sizes import slots_of, with_sizes
from sonorant.engine.workers.ahead import Noted, Wanted, note
from sonorant.logs import start
from sonorant.machine import num_cores
from sonorant.settings import AUTO

log = logging.getLogger(__name__)

NICE = 5  # the workers go first

# Of cards that are common: name, compute capability, GiB, multiprocessors, on which the size of some launches depends.
CARDS = {
    "8.0": Card.of("A100", (8, 0), 80 * GIB, multiprocessors=108),
    "8.6": Card.of("RTX 3090", (8, 6), 24 * GIB, multiprocessors=82),
    "8.9": Card.of("L40S", (8, 9), 48 * GIB, multiprocessors=142),
    "9.0": Card.of("H100", (9, 0), 80 * GIB, multiprocessors=132),
    "10.0": Card.of("B200", (10, 0), 180 * GIB, multiprocessors=148),
    "12.0": Card.of("RTX 5090", (12, 0), 32 * GIB, multiprocessors=170),
}


@dataclass(frozen=True, slots=True)
class Compiled:
    name: str
    shared_bytes: int  # of a block
    seconds: float
    error: str = ""


def compile_all(
    config: EngineConfig, card: Card, num_processes: int, *, one_of_each: bool = False
) -> Iterator[Compiled]:
    """Compile all kernels of a pair for this card, and yield each when it is done. `one_of_each`: of those that have
    the same source, only the one of the largest calls.

    Changes what launches do in this process: use a process of its own.
    """
    from sonorant.engine.tools.listing import kernels_of

    global _kernels
    _kernels = kernels_of(load_checkpoint(config.model), config, card)
    if one_of_each:
        _kernels = list({kernel.name: kernel for kernel in _kernels}.values())
    start.phase("list of kernels")
    # Forked, so that the kernels need not be sent. Nothing here has threads or has started CUDA.
    with ProcessPoolExecutor(num_processes, mp_context=get_context("fork")) as pool:
        for done in as_completed([pool.submit(_compile, number) for number in range(len(_kernels))]):
            yield done.result()


_kernels: Sequence = ()  # type: ignore[type-arg]  # of the process that forks


def _compile(number: int) -> Compiled:
    kernel, began_s = _kernels[number], time.monotonic()
    try:
        shared_bytes, error = kernel.compile(), ""
    except Exception as failure:  # of a compiler: all of them are to be seen
        shared_bytes, error = 0, f"{type(failure).__name__}: {failure}"
    return Compiled(kernel.name, shared_bytes, round(time.monotonic() - began_s, 2), error)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sonorant.engine.tools.kernels", description=__doc__)
    parser.add_argument("--model", default="qwen3-tts-12hz-1.7b-customvoice", help="checkpoint folder, or a preset")
    parser.add_argument("--card", choices=CARDS, default="9.0", help="compute capability")
    parser.add_argument(
        "--num-slots", type=int, default=AUTO, help="as of the server; default: as the card's memory has"
    )
    parser.add_argument("--processes", type=int, default=num_cores())
    parser.add_argument(
        "--one-of-each", action="store_true", help="of one source, only the kernel of the largest calls"
    )
    args = parser.parse_args(argv)
    card, folder = CARDS[args.card], resolve_model(args.model)
    left_open = EngineConfig.of(
        folder,
        num_slots=args.num_slots,
        max_queued_streams=AUTO,
        max_prefill_rows=AUTO,
        max_decode_batch=AUTO,
        kept_references=AUTO,
        code2wav_dtype="auto",
    )
    config = with_sizes(left_open, slots_of(card.memory_bytes, load_checkpoint(folder)))
    failed = False
    for compiled in compile_all(config, card, args.processes, one_of_each=args.one_of_each):
        is_too_large = compiled.shared_bytes > card.shared_bytes
        failed = failed or bool(compiled.error) or is_too_large
        print(json.dumps(asdict(compiled) | {"fits": not is_too_large}), flush=True)
    return int(failed)


def compile_wanted(wanted: Sequence[Wanted]) -> None:
    """Compile these on all cores, behind the workers, which compile, too, and note what was compiled."""
    os.nice(NICE)
    for each in wanted:
        began_s = time.monotonic()
        compiled = list(compile_all(each.config, each.card, num_cores()))
        errors = [one for one in compiled if one.error]
        for one in errors:  # the worker that needs it will say so, too
            log.error("%s cannot be compiled ahead: %s", one.name, one.error)
        if not errors:
            note(each, Noted(len(compiled), round(time.monotonic() - began_s, 1)))
        start.phase("compilation")
    start.end()


if __name__ == "__main__":
    sys.exit(main())

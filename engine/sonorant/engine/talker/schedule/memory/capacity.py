"""The slots and KV pages of a talker, and which streams hold them.

A stream is admitted with pages for the frames that its text so far normally takes, and may be given more later. Prompts
with the same beginning share the pages that hold it.
"""

from collections.abc import Iterable, Mapping

from sonorant.engine.ipc.messages import OpenStream
from sonorant.engine.talker.schedule.memory.pages import NO_LEASES, PagePool
from sonorant.engine.talker.schedule.memory.prefix import page_keys
from sonorant.engine.talker.schedule.slots import SlotState, SlotTable
from sonorant.engine.talker.schedule.stream import NO_SLOT, TalkerStream


class Capacity:
    def __init__(self, num_slots: int, num_pages: int, page_size: int, max_context: int) -> None:
        self._slots = SlotTable(num_slots)
        self._pages = PagePool(num_pages, page_size)
        self._max_context = max_context

    @property
    def num_free_slots(self) -> int:
        return self._slots.num_free

    @property
    def num_free_pages(self) -> int:
        return self._pages.num_free

    def num_free_pages_without(self, leases: Mapping[int, int]) -> int:
        """How many pages would be free if there were not these leases, so many by page."""
        return self._pages.num_free_without(leases)

    def fault_of(self, command: OpenStream) -> str:
        """Return why this stream could never say all that it may say, or ""."""
        positions = command.plan.num_rows + command.sampling.max_frames
        if positions > self._max_context:
            return (
                f"{command.plan.num_rows} prompt rows and {command.sampling.max_frames} frames need {positions} "
                f"positions, but max_context is {self._max_context}: lower max_frames or shorten the prompt"
            )
        if (num_pages := self._pages.pages_for(positions)) > self._pages.num_pages:
            return (
                f"{positions} positions need {num_pages} KV pages, but the talker has only {self._pages.num_pages}: "
                f"lower max_frames or shorten the prompt"
            )
        return ""

    def prepare(self, stream: TalkerStream) -> None:
        """Compute the keys of the pages that a stream can share. Needed before `admit`."""
        stream.page_keys = page_keys(stream.plan, stream.request.x_vector, stream.codes, self._pages.page_size)

    def num_new_pages(self, stream: TalkerStream, without: Mapping[int, int] = NO_LEASES) -> int:
        """Return how many of the free pages `admit` would give to a stream, beside those that it shares.

        Pages count as free, too, if only the leases `without` hold them.
        """
        return self._pages.num_new(self._num_pages(stream), self._shareable(stream), without)

    def admit(self, stream: TalkerStream) -> bool:
        """Give a stream its pages and a slot, in PREFILL. Returns False if there are too few of either."""
        if not self._slots.num_free:
            return False
        lease = self._pages.lease(self._num_pages(stream), self._shareable(stream))
        if lease is None:
            return False
        stream.slot = self._slots.take()
        stream.pages = lease.pages
        self._note_pages(stream)
        stream.num_shared_rows = stream.num_rows_done = lease.num_shared * self._pages.page_size
        return True

    def grow(self, stream: TalkerStream) -> tuple[int, ...]:
        """Give a stream what it needs beside the pages that it has. Returns them, or no pages if there are too few."""
        lease = self._pages.lease(self._num_pages(stream) - len(stream.pages))
        if lease is None:
            return ()
        stream.pages += lease.pages
        self._note_pages(stream)
        return lease.pages

    def _note_pages(self, stream: TalkerStream) -> None:
        stream.paged_frames = len(stream.pages) * self._pages.page_size - stream.request.plan.num_rows
        stream.update_limits()

    def _num_pages(self, stream: TalkerStream) -> int:
        return self._pages.pages_for(stream.num_positions)

    def _shareable(self, stream: TalkerStream) -> tuple[bytes, ...]:
        """The keys of the pages that it can share: the last row of its prompt must be run, to sample from."""
        return stream.page_keys[: (stream.plan.num_rows - 1) // self._pages.page_size]

    def share_prompt(self, stream: TalkerStream) -> None:
        """Let later streams share the stream's prompt pages, which are written now and do not change any more."""
        for page, key in zip(stream.pages, stream.page_keys, strict=False):
            self._pages.share(page, key)

    def state(self, stream: TalkerStream) -> SlotState:
        """The state of the stream's slot; FREE if it has none."""
        return SlotState.FREE if stream.slot == NO_SLOT else self._slots.state(stream.slot)

    def move(self, stream: TalkerStream, state: SlotState) -> None:
        self._slots.move(stream.slot, state)

    def release(self, stream: TalkerStream) -> None:
        self._slots.move(stream.slot, SlotState.FREE)
        self._pages.give_back(stream.pages)

    def check_conservation(self, streams: Iterable[TalkerStream]) -> None:
        """Raise RuntimeError unless free slots and pages, and those of `streams`, are all there are."""
        self._slots.check_conservation()
        self._pages.check_conservation()
        inside = [stream for stream in streams if stream.slot != NO_SLOT]
        num_slots, num_leases = len(inside), sum(len(stream.pages) for stream in inside)
        if (num_slots, num_leases) != (self._slots.num_used, self._pages.num_leases):
            raise RuntimeError(
                f"the open streams hold {num_slots} slots and {num_leases} leases of KV pages, "
                f"but {self._slots.num_used} and {self._pages.num_leases} are given out"
            )

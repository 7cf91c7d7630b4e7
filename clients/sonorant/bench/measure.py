"""Puts one process's share of a load on a server and measures it."""

import asyncio
import time
from dataclasses import dataclass, field

from sonorant.bench.arrivals import poisson_arrivals
from sonorant.bench.loads import Share
from sonorant.bench.speakers import SAMPLE_RATE_HZ, Budget, Speaker, SpeakingFailed
from sonorant.client.listening.playback import PlaybackMeter, PlaybackReport

LAG_INTERVAL_S = 0.01
AFTER_FAILURE_S = 0.1  # pause of a closed loop's speaker after a failure, so that refusals do not become a load


@dataclass(slots=True)
class Outcome:
    """The outcome of one utterance, or of one session in a paced load."""

    planned_s: float  # when it should have begun
    begun_s: float  # when the client began it
    ended_s: float
    counted: bool  # planned within the measured time
    status: str  # OK, or the error in one word
    message: str
    window_audio_s: float  # audio that arrived within the measured time
    opening_s: float  # from `planned_s` until the text was sent; NaN if it never was
    report: PlaybackReport
    budget: Budget = field(default_factory=dict)
    was_sent: bool | None = None  # whether its recording was sent before; None without one


@dataclass(slots=True)
class Measured:
    outcomes: list[Outcome] = field(default_factory=list)
    lags_s: list[float] = field(default_factory=list)  # how late the event loop was, every 10 ms
    cpu_s: float = 0.0  # CPU time of this process within the measured time


async def measure(share: Share, speaker: Speaker, start_s: float) -> Measured:
    """Keep up the load until every utterance that counts is over, then cancel the others."""
    return await _Run(share, speaker, start_s).measure()


class _Run:
    def __init__(self, share: Share, speaker: Speaker, start_s: float) -> None:
        self._share = share
        self._speaker = speaker
        self._start_s = start_s
        self._begin_s = start_s + share.load.warm_up_s
        self._end_s = self._begin_s + share.load.seconds
        self._result = Measured()
        self._num_in_flight = 0  # utterances of an open loop that are not over
        self._num_unfinished = 0  # utterances that count and are not over
        self._all_over = asyncio.Event()

    async def measure(self) -> Measured:
        load = {"closed": self._closed, "open": self._open, "paced": self._paced}[self._share.load.kind]
        async with asyncio.TaskGroup() as tasks:
            lag = tasks.create_task(self._measure_lag())
            await _sleep_until(self._start_s)
            loading = tasks.create_task(load())
            await _sleep_until(self._begin_s)
            cpu_before_s = time.process_time()
            await _sleep_until(self._end_s)
            self._result.cpu_s = time.process_time() - cpu_before_s
            while self._num_unfinished:
                self._all_over.clear()
                await self._all_over.wait()
            loading.cancel()
            lag.cancel()
        return self._result

    async def _closed(self) -> None:
        """Start the speakers one after another in the first half of the warm-up, so that they do not stay in step."""
        share = self._share
        concurrency = int(share.load.amount)

        async def speaker(first: int) -> None:
            await _sleep_until(self._start_s + share.load.warm_up_s / 2 * first / concurrency)
            number = first
            while True:
                planned_s = time.monotonic()
                if not await self._utterance(number, planned_s, self._count_if_in_window(planned_s)):
                    await asyncio.sleep(AFTER_FAILURE_S)
                number += concurrency

        async with asyncio.TaskGroup() as tasks:
            for first in range(share.index, concurrency, share.num_shares):
                tasks.create_task(speaker(first))

    async def _open(self) -> None:
        share = self._share

        async def utterance(number: int, planned_s: float, counted: bool) -> None:
            try:
                await self._utterance(number, planned_s, counted)
            finally:
                self._num_in_flight -= 1

        async with asyncio.TaskGroup() as tasks:
            for number, arrival_s in enumerate(poisson_arrivals(share.load.amount, share.speech.seed)):
                if number % share.num_shares != share.index:
                    continue
                planned_s = self._start_s + arrival_s
                counted = self._count_if_in_window(planned_s)
                await _sleep_until(planned_s)
                if self._num_in_flight >= share.max_in_flight:
                    failed = SpeakingFailed("CLIENT_LIMIT", f"more than {share.max_in_flight} at once in one process")
                    self._record(planned_s, time.monotonic(), counted, PlaybackMeter(SAMPLE_RATE_HZ), failed)
                    continue
                self._num_in_flight += 1
                tasks.create_task(utterance(number, planned_s, counted))

    async def _paced(self) -> None:
        """Start the listeners one after another during the warm-up; all of them stop at the end."""
        share = self._share
        num_listeners = int(share.load.amount)

        async def listener(number: int) -> None:
            planned_s = self._start_s + share.load.warm_up_s * number / num_listeners
            await _sleep_until(planned_s)
            await self._session(number, planned_s)

        async with asyncio.TaskGroup() as tasks:
            for number in range(share.index, num_listeners, share.num_shares):
                self._num_unfinished += 1
                tasks.create_task(listener(number))

    def _count_if_in_window(self, planned_s: float) -> bool:
        """Return whether an utterance that is planned for this time counts. If so, `measure` waits until it is over."""
        counted = self._begin_s <= planned_s < self._end_s
        self._num_unfinished += counted
        return counted

    async def _utterance(self, number: int, planned_s: float, counted: bool) -> bool:
        """Speak and record one utterance; return whether it succeeded."""
        texts = self._share.speech.texts
        meter = PlaybackMeter(SAMPLE_RATE_HZ)
        begun_s = time.monotonic()
        budget: Budget = {}
        failure: SpeakingFailed | None = SpeakingFailed("CANCELLED", "dropped by the benchmark")
        try:
            async with asyncio.timeout(self._share.timeout_s):
                budget = await self._speaker.speak(texts[number % len(texts)], number, meter)
            failure = None
        except SpeakingFailed as error:
            failure = error
        except TimeoutError:
            failure = SpeakingFailed("TIMEOUT", f"the utterance was not over after {self._share.timeout_s:g} s")
        finally:
            self._record(planned_s, begun_s, counted, meter, failure, number=number, budget=budget)
        return failure is None

    async def _session(self, number: int, planned_s: float) -> None:
        texts = self._share.speech.texts
        meter = PlaybackMeter(SAMPLE_RATE_HZ)
        begun_s = time.monotonic()
        failure: SpeakingFailed | None = None
        try:
            async with asyncio.timeout(self._end_s - begun_s):
                await self._speaker.listen(lambda n: texts[(number + n) % len(texts)], number, meter)
        except SpeakingFailed as error:
            failure = error
        except TimeoutError:
            pass  # the session lasted to the end, as it should
        self._record(planned_s, begun_s, True, meter, failure, until_s=self._end_s)

    def _record(
        self,
        planned_s: float,
        begun_s: float,
        counted: bool,
        meter: PlaybackMeter,
        failure: SpeakingFailed | None,
        until_s: float | None = None,
        number: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        report = meter.report(until_s)
        if failure is None and not report.audio_s:
            failure = SpeakingFailed("NO_AUDIO", "the utterance ended without any audio")
        self._result.outcomes.append(
            Outcome(
                planned_s=planned_s,
                begun_s=begun_s,
                ended_s=time.monotonic(),
                counted=counted,
                status=failure.status if failure else "OK",
                message=str(failure) if failure else "",
                window_audio_s=meter.audio_between_s(self._begin_s, self._end_s),
                opening_s=meter.text_sent_s - planned_s,
                report=report,
                budget=budget or {},
                was_sent=self._share.speech.voices.was_sent(number) if number is not None else None,
            )
        )
        self._num_unfinished -= counted
        if not self._num_unfinished:
            self._all_over.set()

    async def _measure_lag(self) -> None:
        while True:
            due_s = time.monotonic() + LAG_INTERVAL_S
            await asyncio.sleep(LAG_INTERVAL_S)
            now_s = time.monotonic()
            if self._begin_s <= now_s < self._end_s:
                self._result.lags_s.append(max(0.0, now_s - due_s))


async def _sleep_until(then_s: float) -> None:
    """Sleep until then, never shorter. Timers of uvloop have whole milliseconds, so poll the clock for the rest."""
    while (left_s := then_s - time.monotonic()) > 0:  # noqa: ASYNC110  there is no event to wait for but the time
        await asyncio.sleep(left_s if left_s > 0.001 else 0)

"""Runs tests in several processes after reading them once: `pytest -p tests.forks --processes 3`.

Reading all tests takes a third of a minute. So each process is a fork of the one that has read them. It asks for the
tests of a file, runs them, asks for those of another one, and sends its reports.

    this process, which has read all tests  --numbers of files-->  forks of it, which run them
                                            <--reports of tests--
"""

import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait

import pytest

Files = Sequence[list[pytest.Item]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, help="how many run tests at the same time, a file each")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.getoption("processes")
    if count == 1 or session.testsfailed or session.config.option.collectonly:
        return None  # pytest goes on as always
    if "torch" in sys.modules:
        import_module("torch._dynamo")  # which takes seconds: optimizers and kernels need it, in each process
    files = [list(items) for _, items in groupby(session.items, lambda item: item.path)]
    workers: dict[Connection, int] = {}
    for _ in range(count):
        ours, theirs = Pipe()
        if not (pid := os.fork()):
            for other in (ours, *workers):
                other.close()
            work(session, files, theirs)
            return True
        theirs.close()
        workers[ours] = pid
    lead(session, len(files), workers)
    return True


def lead(session: pytest.Session, num_files: int, workers: dict[Connection, int]) -> None:
    """Give out the files, and report what became of their tests."""
    config, files = session.config, iter(range(num_files))
    running = dict.fromkeys(workers, "")
    while running:
        for worker in wait(list(running)):
            assert isinstance(worker, Connection)
            try:
                told = worker.recv()
            except EOFError:
                if test := running.pop(worker):
                    raise session.Interrupted(f"a process ended while it ran {test}") from None
                continue
            if told is None:
                worker.send(next(files, None))
            elif isinstance(told, str):
                running[worker] = told
            else:
                report = config.hook.pytest_report_from_serializable(config=config, data=told)
                config.hook.pytest_runtest_logreport(report=report)
                if report.when == "teardown":
                    config.hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
                    running[worker] = ""
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
    for worker, pid in workers.items():
        worker.close()
        os.waitpid(pid, 0)


def work(session: pytest.Session, files: Files, leader: Connection) -> None:
    config = session.config
    config.workerinput = {}  # type: ignore[attr-defined]  # by which plugins know that another process keeps their files
    config.pluginmanager.getplugin("terminalreporter")._tw._file = open(os.devnull, "w")  # noqa: SIM115
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # into files that all processes would share
    capture.start_global_capturing()
    capture.suspend_global_capture()
    config.pluginmanager.register(Told(config, leader))
    tests = asked_for(files, leader)
    test = next(tests, None)
    while test is not None:
        following = next(tests, None)
        config.hook.pytest_runtest_protocol(item=test, nextitem=following)
        test = following


def asked_for(files: Files, leader: Connection) -> Iterator[pytest.Item]:
    while True:
        leader.send(None)
        if (number := leader.recv()) is None:
            return
        yield from files[number]


class Told:
    def __init__(self, config: pytest.Config, leader: Connection) -> None:
        self._config, self._leader = config, leader

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._leader.send(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._leader.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

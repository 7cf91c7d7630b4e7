"""How many server processes there are, and the settings of each; tests/e2e has the processes themselves."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sonorant.engine import AUTO
from sonorant.service import owner
from sonorant.service.owner import number_of, own_config
from tests.service.harness import server_config


def test_a_server_process_has_ports_of_its_own_beside_the_shared_one() -> None:
    config = server_config(processes=3, metrics_listen="[::]:9400", admin_listen="127.0.0.1:9500")
    third = own_config(config, 2, "127.0.0.1:50051")
    assert third.listen == "127.0.0.1:50051"
    assert (third.metrics_listen, third.admin_listen) == ("127.0.0.1:0", "127.0.0.1:9502")
    without = own_config(replace(config, metrics_listen=None, admin_listen=None), 2, "127.0.0.1:50051")
    assert (without.metrics_listen, without.admin_listen) == (None, None)


def test_all_places_are_open_to_every_server_process() -> None:
    config = server_config(processes=3, max_sessions=100)
    own = own_config(config, 0, "127.0.0.1:50051")
    assert (own.max_sessions, own.engines) == (100, config.engines)


def test_there_are_as_many_as_the_cores_of_a_machine_with_a_gpu_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    auto = server_config(processes=AUTO)
    assert number_of(auto) == 1
    assert number_of(replace(auto, processes=2)) == 2

    monkeypatch.setattr(owner, "find_card", lambda device: "a card")
    for num_cores, expected in ((1, 1), (4, 2), (8, 4), (15, 7), (64, 8)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, num_cores=num_cores: set(range(num_cores)))
        assert number_of(auto) == expected


def test_all_have_the_same_key_of_receipts() -> None:
    config = server_config(processes=2, receipt_key=b"k" * 32)
    assert {own_config(config, number, "127.0.0.1:1").receipt_key for number in range(2)} == {b"k" * 32}


def test_with_keys_there_are_as_many_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "find_card", lambda device: "a card")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    assert number_of(server_config(processes=AUTO, api_keys=Path("keys.toml"))) == 8

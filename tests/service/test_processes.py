"""The settings of each of several server processes; tests/e2e has the processes themselves."""

from dataclasses import replace

from sonorant.engine import AUTO
from sonorant.service.processes import part_config
from tests.service.harness import server_config


def test_a_process_has_ports_of_its_own_beside_the_shared_one() -> None:
    config = server_config(processes=3, metrics_listen="[::]:9400", admin_listen="127.0.0.1:0")
    third = part_config(config, 2, config.engines, "127.0.0.1:50051")
    assert (third.listen, third.shares_port) == ("127.0.0.1:50051", True)
    assert (third.metrics_listen, third.admin_listen) == ("[::]:9402", "127.0.0.1:0")
    assert (third.processes, third.mps) == (1, "false")
    assert part_config(replace(config, metrics_listen=None), 2, (), "127.0.0.1:50051").metrics_listen is None


def test_the_limit_of_calls_is_shared_out() -> None:
    config = server_config(processes=3, max_sessions=100)
    assert part_config(config, 0, config.engines, "127.0.0.1:50051").max_sessions == 34
    assert part_config(replace(config, max_sessions=AUTO), 0, config.engines, "127.0.0.1:50051").max_sessions == AUTO

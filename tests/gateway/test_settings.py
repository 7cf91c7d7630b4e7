"""The gateway's settings come from flags, the environment and a file, and a wrong one ends the process with a hint."""

from pathlib import Path

import pytest

from sonorant.gateway.settings import GatewayConfig, parse_args


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        (["--listen", "8000"], "is not HOST:PORT"),
        (["--server", "a:1", "--server", "b"], "--server: 'b' is not HOST:PORT"),
        (["--tls-key", "key.pem"], "TLS needs both"),
        (["--processes", "0"], "at least 1"),
        (["--default-format", "midi"], "'midi' is not one of mp3"),
        (["--drain-grace-s", "never"], "number of seconds"),
        (["--serve", "1:2"], "--serve is not a setting; did you mean --server?"),
    ],
)
def test_flags_that_cannot_be_are_refused(flags: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_args(flags, {})
    assert ended.value.code == 2 and hint in capsys.readouterr().err


def test_without_any_source_there_are_the_defaults() -> None:
    assert parse_args([], {}) == GatewayConfig()


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text('max_connections = 5\nserver = ["a:1", "b:2"]\n')
    file, variables = ["--config", str(path)], {"SONORANT_GATEWAY_MAX_CONNECTIONS": "6"}
    assert parse_args(file, {}).max_connections == 5
    assert parse_args(file, variables).max_connections == 6
    assert parse_args([*file, "--max-connections", "7"], variables).max_connections == 7
    assert parse_args([], {"SONORANT_GATEWAY_CONFIG": str(path)}).servers == ("a:1", "b:2")


def test_the_key_of_wyoming_need_not_be_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text('wyoming_key = "of the file"\n')
    assert parse_args([], {"SONORANT_GATEWAY_WYOMING_KEY": "of the environment"}).wyoming_key == "of the environment"
    assert parse_args(["--config", str(path)], {}).wyoming_key == "of the file"


def test_several_values_are_repeated_flags_or_parted_by_commas() -> None:
    for flags, variables in (
        (["--server", "a:1", "--server", "b:2", "--cors-origin", "*"], {}),
        ([], {"SONORANT_GATEWAY_SERVER": "a:1,b:2", "SONORANT_GATEWAY_CORS_ORIGIN": "*"}),
    ):
        config = parse_args(flags, variables)
        assert config.servers == ("a:1", "b:2") and config.cors_origins == ("*",)


def test_an_unknown_name_is_refused_wherever_it_comes_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text("max_connection = 5\n")
    for flags, variables, hint in (
        (["--config", str(path)], {}, f"{path}: max_connection is not a setting here; did you mean max_connections?"),
        ([], {"SONORANT_GATEWAY_PROCESS": "2"}, "did you mean SONORANT_GATEWAY_PROCESSES?"),
    ):
        with pytest.raises(SystemExit):
            parse_args(flags, variables)
        assert hint in " ".join(capsys.readouterr().err.split())


def test_variables_of_others_are_ignored() -> None:
    of_kubernetes = {"SONORANT_GATEWAY_SERVICE_HOST": "10.0.0.1", "SONORANT_GATEWAY_PORT": "tcp://10.0.0.1:8000"}
    assert parse_args([], {**of_kubernetes, "SONORANT_NUM_SLOTS": "8"}) == GatewayConfig()

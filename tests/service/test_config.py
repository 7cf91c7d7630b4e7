from pathlib import Path

import pytest

from engine import BUILTIN_VOICE_DIR
from service.config import parse_args


def test_no_flags_serve_the_built_in_voice_on_loopback() -> None:
    config = parse_args([])
    assert (config.listen, config.engine.model) == ("127.0.0.1:50051", BUILTIN_VOICE_DIR)


def test_flags_reach_the_engine(tmp_path: Path) -> None:
    config = parse_args(
        f"--model {tmp_path} --load-format dummy --dtype bfloat16 --talker-device cuda:1 --num-slots 7 "
        "--listen [::]:0 --max-text-chars 9 --drain-grace-s 0.5".split()
    )
    engine = config.engine
    assert (engine.model, engine.load_format, engine.dtype) == (tmp_path, "dummy", "bfloat16")
    assert (engine.talker_device, engine.num_slots) == ("cuda:1", 7)
    assert (config.listen, config.max_text_chars, config.drain_grace_s) == ("[::]:0", 9, 0.5)


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        (["--listen", "50051"], "127.0.0.1:50051"),
        (["--listen", "host:99999"], "HOST:PORT"),
        (["--model", "no-such-model"], "presets"),
        (["--num-slots", "0"], "at least 1"),
        (["--num-slots", "-1"], "--num-slots"),
        (["--talker-device", "gpu"], "cuda:N"),
        (["--dtype", "int8"], "bfloat16"),
        (["--drain-grace-s", "nan"], "seconds"),
        (["--num-slot", "4"], "--num-slot"),
    ],
)
def test_bad_flags_end_the_process_with_a_hint(flags: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_args(flags)
    assert caught.value.code == 2
    assert hint in capsys.readouterr().err

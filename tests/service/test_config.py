import hashlib
import math
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from sonorant.engine import BUILTIN_VOICE_DIR, EngineConfig
from sonorant.service.audio.formats import FRAME_DURATIONS_MS
from sonorant.service.audio.stretch import SPEEDS
from sonorant.service.config import GONE, SOURCES, parse_args
from sonorant.service.settings import HELP, SETTINGS
from tests.e2e.server_process import refused


def test_no_flags_serve_the_built_in_voice_on_loopback() -> None:
    config = parse_args([])
    assert (config.listen, config.engine.model) == ("127.0.0.1:50051", BUILTIN_VOICE_DIR)


def test_flags_reach_the_engine(tmp_path: Path) -> None:
    config = parse_args(
        f"--model {tmp_path} --load-format dummy --dtype bfloat16 --talker-device cuda:1 --num-slots 7 "
        "--talker-weights int8 "
        "--listen [::]:0 --max-text-chars 9 --drain-grace-s 0.5".split()
    )
    engine = config.engine
    assert (engine.model, engine.load_format, engine.dtype) == (tmp_path, "dummy", "bfloat16")
    assert (engine.talker.device, engine.talker.num_slots, engine.talker.weights) == ("cuda:1", 7, "int8")
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
        (["--talker-weights", "int2"], "auto, int8, int4"),
        (["--talker-weights", "fp8"], "'fp8' is not one of auto, int8, int4"),
        (["--drain-grace-s", "nan"], "seconds"),
        (["--num-slot", "4"], "--num-slot is not a setting; did you mean --num-slots?"),
        (["serve"], "serve is not a setting"),
        (["--phrases", "phrases.jsonl"], "--phrase-cache-bytes"),
        (["--enforce-eager", "yes"], "neither true nor false"),
    ],
)
def test_bad_flags_end_the_process_with_a_hint(flags: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_args(flags)
    assert caught.value.code == 2
    assert hint in capsys.readouterr().err


FILE = """
model = "built-in"
device = "cpu"
load_format = "dummy"
enforce_eager = true

[talker]
num_slots = 5
max_context = 512

[code2wav]
device = "cuda:1"
dtype = "tf32"

[service]
listen = "[::1]:0"
drain_grace_s = 2.5
open_services = ["health", "reflection"]
"""


def test_every_setting_has_one_name_in_each_source() -> None:
    for names in (
        [s.flag for s in SETTINGS],
        [SOURCES.variable(s) for s in SETTINGS],
        [(s.stage, s.key) for s in SETTINGS],
    ):
        assert len(set(names)) == len(names)


def test_the_help_says_for_what_each_setting_is() -> None:
    assert sorted(" ".join(HELP.values()).split()) == sorted(setting.name for setting in SETTINGS)


def test_what_was_a_setting_is_refused_with_what_to_do_instead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {setting.name for setting in SETTINGS}
    file = tmp_path / "sonorant.toml"
    for name, hint in GONE.items():
        assert name not in names
        file.write_text(f"{name} = 4")
        for flags, variables in (
            ([f"--{name.replace('_', '-')}", "4"], {}),
            ([], {f"SONORANT_{name.upper()}": "4"}),
            (["--config", str(file)], {}),
        ):
            with pytest.raises(SystemExit):
                parse_args(flags, variables)
            assert hint in capsys.readouterr().err


def test_the_longest_frame_of_audio_fits_into_the_credit() -> None:
    """All codec frames of a frame of audio are made before it is sent, and changes of rate and speed hold two back."""
    codec_frames = math.ceil(FRAME_DURATIONS_MS[-1] / 1000 * SPEEDS[1] * 12.5)
    engine = parse_args([], {}).engine
    assert engine.talker.credit_frames >= codec_frames + 2
    assert engine.talker.credit_frames > engine.code2wav.chunk_ramp[-1], "one frame more than the largest chunk"


def test_an_engine_s_settings_have_the_names_of_their_flags() -> None:
    config = EngineConfig.of(BUILTIN_VOICE_DIR, num_slots=7, talker_device="cpu")
    assert (config.talker.num_slots, config.talker.device, config.code2wav.device) == (7, "cpu", "auto")
    assert config.but(num_slots=8).talker == replace(config.talker, num_slots=8)
    with pytest.raises(TypeError, match="device, slots"):
        config.but(slots=8, device="cpu")


def test_a_file_with_a_table_per_stage(tmp_path: Path) -> None:
    path = tmp_path / "sonorant.toml"
    path.write_text(FILE, encoding="utf-8-sig")  # as on Windows
    for config in (parse_args(["--config", str(path)]), parse_args([], {"SONORANT_CONFIG": str(path)})):
        engine = config.engine
        assert (engine.model, engine.load_format, engine.enforce_eager) == (BUILTIN_VOICE_DIR, "dummy", True)
        assert (engine.talker.device, engine.code2wav.device) == ("cpu", "cuda:1")
        assert (engine.talker.num_slots, engine.talker.max_context, engine.code2wav.dtype) == (5, 512, "tf32")
        assert (config.listen, config.drain_grace_s) == ("[::1]:0", 2.5)
        assert config.open_services == ("health", "reflection")


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sonorant.toml"
    path.write_text("[talker]\nnum_slots = 5\n")
    file, variable, flag = ["--config", str(path)], {"SONORANT_NUM_SLOTS": "6"}, ["--num-slots", "7"]
    assert parse_args(file, {}).engine.talker.num_slots == 5
    assert parse_args(file, variable).engine.talker.num_slots == 6
    assert parse_args([*file, *flag], variable).engine.talker.num_slots == 7
    assert parse_args([], variable).engine.talker.num_slots == 6


@pytest.mark.parametrize("of_all", ["flag", "variable", "file"])
@pytest.mark.parametrize("of_stage", ["flag", "variable", "file"])
def test_the_setting_of_a_stage_wins_wherever_the_two_come_from(of_all: str, of_stage: str, tmp_path: Path) -> None:
    flags, variables, lines = [], {}, []
    for source, flag, variable, line in (
        (of_all, "--device=cuda:0", ("SONORANT_DEVICE", "cuda:0"), 'device = "cuda:0"'),
        (of_stage, "--talker-device=cpu", ("SONORANT_TALKER_DEVICE", "cpu"), '[talker]\ndevice = "cpu"'),
    ):
        if source == "flag":
            flags.append(flag)
        elif source == "variable":
            variables.update([variable])
        else:
            lines.append(line)
    path = tmp_path / "sonorant.toml"
    path.write_text("\n".join(lines))
    engine = parse_args([*flags, "--config", str(path)], variables).engine
    assert (engine.talker.device, engine.code2wav.device) == ("cpu", "cuda:0")


def test_models_and_gpus_make_worker_pairs(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()

    def pairs(*flags: str, **variables: str) -> list[tuple[Path, str, str]]:
        engines = parse_args(flags, variables).engines
        return [(engine.model, engine.talker.device, engine.code2wav.device) for engine in engines]

    models = ("--model", str(one), "--model", str(two))
    assert pairs(*models) == [(one, "auto", "auto"), (two, "auto", "auto")]
    assert pairs(SONORANT_MODEL=f"{one},{two}") == pairs(*models)
    assert pairs("--pairs", "3", "--device", "cpu") == [(BUILTIN_VOICE_DIR, "cpu", "cpu")] * 3
    with_standby = parse_args(("--pairs", "2", "--standby", "1"), {}).engines
    assert [engine.is_standby for engine in with_standby] == [False, False, True]
    wants = [[engine.wants_standby for engine in parse_args(flags, {}).engines] for flags in ((), ("--pairs", "2"))]
    assert wants == [[True], [False, False]], "where streams can go on beside, no standby is kept"
    assert not parse_args(("--standby", "0"), {}).engine.wants_standby
    assert pairs(*models, "--gpus", "0,2") == [
        *((one, "cuda:0", "cuda:0"), (one, "cuda:2", "cuda:2")),
        *((two, "cuda:0", "cuda:0"), (two, "cuda:2", "cuda:2")),
    ]
    # The setting of a stage wins: talkers on two GPUs, all of the codec on a third.
    of_stage = pairs("--model", str(one), "--gpus", "0,1", "--code2wav-device", "cuda:2")
    assert of_stage == [(one, "cuda:0", "cuda:2"), (one, "cuda:1", "cuda:2")]
    two_gpus = pairs("--model", str(one), "--talker-device", "cuda:0", "--code2wav-device", "cuda:1")
    assert two_gpus == [(one, "cuda:0", "cuda:1")]


def test_a_model_of_the_file_has_settings_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "sonorant.toml"
    path.write_text(
        f"""
        dtype = "float32"
        [talker]
        num_slots = 5
        [[models]]
        model = "built-in"
        [[models]]
        model = "{tmp_path}"
        dtype = "bfloat16"
        gpus = [0, 1]
        [models.talker]
        num_slots = 3
        """
    )
    found = [
        (e.model, e.dtype, e.talker.num_slots, e.talker.device) for e in parse_args(["--config", str(path)], {}).engines
    ]
    assert found == [
        (BUILTIN_VOICE_DIR, "float32", 5, "auto"),
        (tmp_path, "bfloat16", 3, "cuda:0"),
        (tmp_path, "bfloat16", 3, "cuda:1"),
    ]
    devices = [e.talker.device for e in parse_args(["--config", str(path), "--device", "cpu"], {}).engines]
    assert devices == ["cpu", "cuda:0", "cuda:1"]
    slots = [engine.talker.num_slots for engine in parse_args(["--config", str(path), "--num-slots", "9"], {}).engines]
    assert slots == [9, 3, 3], "a model's own setting wins wherever the one for all comes from"


def test_threads_and_mps_of_a_stage(tmp_path: Path) -> None:
    config = parse_args(["--cpu-threads", "2", "--mps", "true"], {})
    assert (config.mps, config.engine.threads("talker"), config.engine.threads("code2wav")) == ("true", 2, 2)
    default = parse_args([], {})
    assert (default.mps, default.engine.environment().get("CUDA_MPS_PIPE_DIRECTORY")) == ("auto", None)
    (tmp_path / "mps.toml").write_text("[service]\nmps = false")
    assert parse_args(["--config", str(tmp_path / "mps.toml")], {}).mps == "false"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("num_slots = 4", "it belongs in [talker]"),
        ("[[models]]\nmodel = 'built-in'\nlisten = '[::]:0'", "[[models]] 1: listen is not a setting here"),
        ("[[models]]\nnum_slots = 4", "[[models]] 1: num_slots is not a setting here; it belongs in [talker]"),
        ("[[models]]\nmodel = 'built-in'\n[models.talker]\nslots = 4", "[models.talker]: slots is not a setting here"),
        ("[[models]]\ndevice = 'cpu'", "[[models]] 1: model must name one checkpoint"),
        ("models = 'built-in'", "each under [[models]]"),
        ("model = 'built-in'\n[[models]]\nmodel = 'built-in'", "leave --model out"),
        ("device = 'cpu'\ngpus = [0]", "--gpus replaces --device"),
        ("gpus = [0, 0]", "names a GPU twice"),
        ("[talker]\nnum_slot = 4", "did you mean num_slots?"),
        ("[talker]\ntalker_device = 'cpu'", "talker_device is not a setting here"),
        ("[talkers]\nnum_slots = 4", "talkers is not a setting here; did you mean talker?"),
        ("[talker]\ncpu_threads = 2", "cpu_threads is not a setting here; set --cpu-threads"),
        ("[code2wav]\nsm_percent = 25", "Code2Wav may use the whole GPU"),
        ("talker = 3", "[talker] must be a table"),
        ("[talker]\nnum_slots = 0", "num_slots: must be at least 1"),
        ("[talker]\nnum_slots = 1.5", "num_slots: '1.5' is not a whole number"),
        ("[talker.num_slots]\na = 1", "num_slots must be a value"),
        ("[service]\nlisten = 50051", "HOST:PORT"),
        ("[service]\ntls_key = 'key.pem'", "--tls-certificate"),
        ("model = 'no-such-model'", "presets"),
        ("[talker", "not TOML"),
        ("x = " + "[" * 5000, "not TOML"),
    ],
)
def test_a_bad_file_ends_the_process_with_the_name_of_the_key(
    text: str, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sonorant.toml"
    path.write_text(text)
    with pytest.raises(SystemExit) as caught:
        parse_args(["--config", str(path)], {})
    assert caught.value.code == 2
    assert hint in capsys.readouterr().err


def test_a_variable_that_is_no_setting_ends_the_process(capsys: pytest.CaptureFixture[str]) -> None:
    for variable, hint in (
        ("SONORANT_NUM_SLOT", "SONORANT_NUM_SLOTS?"),
        ("SONORANT_METRICS_PORT", "is not a setting"),
    ):
        with pytest.raises(SystemExit):
            parse_args([], {variable: "4"})
        assert hint in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse_args([], {"SONORANT_NUM_SLOTS": "many"})
    assert "SONORANT_NUM_SLOTS: 'many'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse_args([], {"SONORANT_CONFIG": "missing.toml"})
    assert "cannot read missing.toml" in capsys.readouterr().err


def test_what_kubernetes_tells_of_services_is_not_taken_for_settings() -> None:
    service = {
        "SONORANT_SERVICE_HOST": "10.0.0.7",
        "SONORANT_SERVICE_PORT": "50051",
        "SONORANT_SERVICE_PORT_GRPC": "50051",
        "SONORANT_PORT": "tcp://10.0.0.7:50051",
        "SONORANT_PORT_50051_TCP": "tcp://10.0.0.7:50051",
        "SONORANT_PORT_50051_TCP_PROTO": "tcp",
        "SONORANT_TTS_PORT_9090_TCP_ADDR": "10.0.0.7",
        "SONORANT_CLIENT_API_KEY": "of the client in the same shell",
    }
    assert parse_args([], service) == parse_args([], {})


def test_an_unknown_key_stops_the_server_itself(tmp_path: Path) -> None:
    path = tmp_path / "sonorant.toml"
    path.write_text("[service]\nmax_sesions = 4\n")
    code, log = refused(tmp_path / "log", "--config", str(path))
    assert code == 2
    assert "[service]: max_sesions is not a setting here; did you mean max_sessions?" in log


@pytest.mark.parametrize("subcommand", [["new-key"], ["doctor"], ["voices"], ["voices", "migrate"]])
def test_a_subcommand_explains_itself_and_does_nothing(subcommand: list[str]) -> None:
    command = [sys.executable, "-m", "sonorant.service", *subcommand]
    for flag in ("-h", "--help"):
        result = subprocess.run([*command, flag], capture_output=True, text=True, check=True, timeout=60)
        assert result.stdout.startswith(f"usage: sonorant-server {subcommand[0]} ") and result.stderr == ""
        assert "--max-sessions" not in result.stdout, "which is of the server"


def test_new_key_prints_the_table_apart_from_the_key() -> None:
    command = [sys.executable, "-m", "sonorant.service", "new-key"]
    result = subprocess.run([*command, "agent"], capture_output=True, text=True, check=True, timeout=60)
    key = result.stderr.split()[-1]
    assert tomllib.loads(result.stdout) == {"agent": {"sha256": hashlib.sha256(key.encode()).hexdigest()}}
    for names, hint in ((["two words"], "'two words'"), ([], "use new-key NAME"), (["-x"], "use new-key NAME")):
        bad = subprocess.run([*command, *names], capture_output=True, text=True, check=False, timeout=60)
        assert (bad.returncode, bad.stdout) == (2, "") and hint in bad.stderr

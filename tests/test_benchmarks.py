"""The benchmarks' flags and operation counts; what they measure is looked at by people."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from absl import flags

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if path.stem != "bench")


@pytest.fixture(autouse=True)
def _found_as_by_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)


def load(name: str) -> ModuleType:
    path = next(path for path in SCRIPTS if path.stem == name)
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", [path.stem for path in SCRIPTS])
def test_flags_have_defaults_and_a_question(name: str) -> None:
    module = load(name)
    flag_values = flags.FlagValues()
    module.define_flags(flag_values)
    flag_values(["script", "--threads=1", "--output=x.json"])
    assert (flag_values.threads, flag_values.output) == (1, "x.json")
    assert (module.__doc__ or "").splitlines()[0].endswith("?")


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help(script: Path) -> None:
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True)
    assert "--output" in done.stdout
    assert done.returncode in (0, 1)  # absl exits with 1 after --help
    assert "Traceback" not in done.stderr


# B = 10, M = 2, D = 3: M^2 B = 40, M B (D + 2) = 100, M^3 = 8.
@pytest.mark.parametrize(
    ("model", "P", "is_first", "is_last", "float64", "float32"),
    [
        # variance 4 * 3 * 40 + S 6 * 3 * 8, solve 4 * 40, kernel 4 * 100, mean 6 * 3 * 20, Cholesky 13 * 8 / 3
        ("full", 3, True, False, 480 + 144 + 160 + 400 + 360 + 104 / 3, 0),
        ("mixed", 3, True, False, 160 + 400 + 360 + 104 / 3, 480 + 144),
        ("mixed", 1, False, True, 160 + 48 + 160 + 600 + 120 + 104 / 3, 0),
        ("fast", 3, False, False, 104 / 3, 480 + 144 + 160 + 600 + 360),
        ("gpflux", 3, False, False, 720 + 160 + 600 + 360 + 104 / 3, 0),
        ("svgp", 1, True, True, 240 + 160 + 400 + 120 + 104 / 3, 0),
    ],
)
def test_operations_of_a_training_step(
    model: str, P: int, is_first: bool, is_last: bool, float64: float, float32: float
) -> None:
    flops = load("training_step").layer_flops(model, B=10, M=2, D=3, P=P, is_first=is_first, is_last=is_last)
    assert flops == pytest.approx((float64, float32), rel=1e-12)


# n = 10, M = 2, D = 3: M^2 n = 40, M n (D + 2) = 100, M^3 = 8.
@pytest.mark.parametrize(
    ("method", "P", "is_last", "float64", "float32"),
    [
        # variance 2 * 3 * 40, projection 2 * 40, kernel 2 * 100, mean 2 * 3 * 20, factors 8 / 3 + 8 + (2 + 4) * 3 * 8
        ("full", 3, False, 240 + 200 + 120 + 8 / 3 + 8 + 48 + 96, 0),
        ("full, cached", 3, False, 240 + 200 + 120, 0),
        ("mixed", 3, False, 80 + 200 + 120 + 8 / 3 + 8 + 48, 240),
        ("mixed, cached", 3, False, 80 + 200 + 120, 240),
        ("mixed, cached", 1, True, 80 + 200 + 40, 0),
        ("float32, cached", 3, False, 0, 240 + 80 + 200 + 120),
        ("gpflux", 3, False, 240 + 40 + 200 + 120 + 8 / 3, 0),
    ],
)
def test_operations_of_a_prediction(method: str, P: int, is_last: bool, float64: float, float32: float) -> None:
    flops = load("prediction").layer_flops(method, n=10, M=2, D=3, P=P, is_last=is_last)
    assert flops == pytest.approx((float64, float32), rel=1e-12)


def test_gpflux_computes_its_first_layer_for_every_draw() -> None:
    script = load("prediction")
    once, often = (script.prediction_flops("full, cached", 2, 10, S).float64 for S in (1, 5))
    last = script.layer_flops("full, cached", n=10, M=script.M, D=script.D, P=1, is_last=True).float64
    assert often - once == pytest.approx(4 * last, rel=1e-12)
    assert script.prediction_flops("gpflux", 2, 10, 5).float64 == pytest.approx(
        5 * script.prediction_flops("gpflux", 2, 10, 1).float64, rel=1e-12
    )


@pytest.mark.parametrize(
    ("scores", "first"),
    [
        ([1.0, 1.3, 1.2, 1.26, 1.27], 3),  # the second was only once above
        ([1.3, 1.4], 0),
        ([1.3, 1.25], None),  # has to be above
        ([1.3, float("nan"), 1.3], 2),
        ([], None),
    ],
)
def test_when_a_quality_is_reached_for_good(scores: list[float], first: int | None) -> None:
    assert load("time_to_quality").reached([{"log_likelihood": score} for score in scores], 1.25) == first


def test_programs_without_an_environment_are_left_out() -> None:
    module, flag_values = load("time_to_quality"), flags.FlagValues()
    module.define_flags(flag_values)
    flag_values(["script", "--gpflux=/env/python"])
    words = module.command("gpflux:0.03", 2, "data.npz", flag_values)
    assert words[0] == "/env/python"
    assert words[1].endswith("rivals/gpflux_kin8nm.py")
    assert words[2:] == ["--data=data.npz", "--rate=0.03", "--seed=2", "--steps=50"]
    assert module.command("gpytorch:0.03", 0, "data.npz", flag_values) is None
    assert module.command("ours:0:--preset=paper2017", 0, "data.npz", flag_values)[-1] == "--preset=paper2017"
    with pytest.raises(ValueError, match=r"--programs must be ours, gpflux, gpytorch, each with a rate .* 'svgp:1'"):
        module.command("svgp:1", 0, "data.npz", flag_values)

"""The benchmarks' flags and operation counts; what they measure is looked at by people."""

import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from absl import flags

import compression
from tests.test_results_of_record import commands

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
    # What results/ says of it can be given again.
    for program, *arguments in commands():
        if program == f"benchmarks/{name}.py":
            flag_values = flags.FlagValues()
            module.define_flags(flag_values)
            flag_values([program, *arguments])


def shared() -> ModuleType:
    return importlib.import_module("bench")


def test_functions_take_turns_and_first_calls_do_not_count() -> None:
    called: list[tuple[str, int]] = []

    def named(name: str) -> Callable[[int], int]:
        def call(i: int) -> int:
            called.append((name, i))
            return 10 * i

        return call

    functions = {name: named(name) for name in "ab"}
    assert shared().in_turn(functions, 2, warm_up=1) == {"a": [10, 20], "b": [10, 20]}
    assert called == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]
    times = shared().time_in_turn(functions, 3)["b"]
    assert (times.wall.shape, times.cpu.shape, times.last) == ((3,), (3,), 30)


def test_times_are_compared_call_by_call() -> None:
    found = shared().compared(np.array([2.0, 1.0, 4.0]), np.array([2.0, 3.0, 16.0]), "ms")
    assert found == {"min_ms": 1.0, "median_ms": 2.0, "ratio_of_minima": 2.0, "ratio_quartiles": [2.0, 3.0, 3.5]}


def test_a_table_has_no_cell_where_a_row_has_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"what": "{what}", "ms [least]": "{ms[1]:.1f} [{ms[0]:.1f}]", "share": "{share:.0%}"}
    shared().print_table([{"what": "x", "ms": [1, 2], "share": None}, {"what": "yy", "share": 0.5}], columns)
    assert capsys.readouterr().out == "what  ms [least]  share\n   x   2.0 [1.0]       \n  yy                50%\n"


def test_what_is_kept_says_what_made_it(tmp_path: Path) -> None:
    shared().keep({"metrics": [{"x": np.float32(2)}]}, "none", path=tmp_path / "found.json", other=3)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["metrics"] == [{"x": 2.0}]
    assert {"command", "git_commit", "cpus", "seconds", "cpu_seconds", "other"} <= found["provenance"].keys()


def test_programs_of_another_python_answer_until_they_end() -> None:
    program = "import sys\nprint('noise\\n1', flush=True)\nfor line in sys.stdin:\n    print(2 * int(line), flush=True)"
    with shared().Rival(sys.executable, "-c", program) as rival:
        assert (rival.answer(), rival.ask(3), rival.ask(4)) == (1, 6, 8)
    failing = "import os, sys; sys.exit(int(os.environ['STATUS']))"
    with (
        shared().Rival(sys.executable, "-c", failing, STATUS="7") as rival,
        pytest.raises(RuntimeError, match=r"has ended \(exit code 7\)"),
    ):
        rival.answer()
    assert shared().answer_of(sys.executable, "import sys; print('noise ANSWER' + sys.argv[1])", "[5]") == [5]
    with pytest.raises(RuntimeError, match="process failed"):
        shared().answer_of(sys.executable, "print(1)", "")


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help(script: Path) -> None:
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True)
    assert "--output" in done.stdout
    assert done.returncode in (0, 1)  # absl exits with 1 after --help
    assert "Traceback" not in done.stderr


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


def test_the_sizes_of_networks_for_photographs_are_those_of_their_papers() -> None:
    """He et al. (2016): 0.27 million parameters, 40.6 million products; here shortcuts have weights, too."""
    module = load("photographs")
    size = compression.size_of(module.resnet_20())
    places = [(432, 1024), (6 * 2304, 1024), (4608 + 5 * 9216 + 512, 256), (18_432 + 5 * 36_864 + 2048, 64), (640, 1)]
    assert size.weights == sum(number for number, _ in places) == 270_896
    assert size.multiplications == sum(number * places for number, places in places)
    plain = module.vgg(64)
    assert [layer.filters for layer in plain.layers if hasattr(layer, "filters")] == [1, 1, 2, 2, 4, 4, 4, *[8] * 6]


def test_published_names_are_methods_of_results() -> None:
    """Of Table 1 of expectation backpropagation; "bp" is each backpropagation that is not clipped."""
    module = load("ebp_table1")
    names = {f"{weights} {output}" for weights in ("real", "binary") for output in "DP"} | {"arow", "bp"}
    assert all(set(errors) <= names for errors in module.PUBLISHED.values())
    assert [module.paper_of("reuters_i6", method) for method in ("bp_ce", "bp_clipped", "arow")] == [13.3, None, 11.72]


def test_passes_that_an_earlier_call_has_made_keep_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Of `ebp_images.py`, which goes on with the passes of its folder."""
    module = load("ebp_images")
    part = SimpleNamespace(X=rng.uniform(size=[30, 784]), Y=np.arange(30.0)[:, None] % 10)
    data = SimpleNamespace(parts={"all": part}, folds=lambda count: [(np.arange(20), np.arange(20, 30))])
    monkeypatch.setattr(module.bench, "load", lambda *names, **options: data)
    output = tmp_path / "passes.jsonl"
    for epochs in (1, 3):
        flag_values = flags.FlagValues()
        module.define_flags(flag_values)
        words = ["script", f"--run_dir={tmp_path}", "--filters=", "--weights=real", f"--epochs={epochs}"]
        flag_values([*words, f"--output={output}"])
        monkeypatch.setattr(flags, "FLAGS", flag_values)
        module.main(flag_values)
        assert [json.loads(line)["pass"] for line in output.read_text().splitlines()] == [*range(1, epochs + 1)]

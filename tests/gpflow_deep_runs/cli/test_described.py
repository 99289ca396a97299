"""gpflow_deep_runs.cli.described and gpflow_deep_runs.command: what is said before TensorFlow starts."""

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.cli import contradictions
from gpflow_deep_runs.cli.described import FILE, answer, descriptions_of, load, stored
from gpflow_deep_runs.cli.flags import help_text, named_flags, read, text_of
from gpflow_deep_runs.data.tables import TableSpec, read_table
from gpflow_deep_runs.verbs import VERBS

ROOT = Path(__file__).resolve().parents[3]

#: A process in which TensorFlow, pandas and the papers cannot be imported, so that whatever ends it came before them.
WITHOUT_TENSORFLOW = """
import runpy, sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "keras", "gpflow", "pandas", "sklearn"):
            raise SystemExit(f"imports {name}")
sys.meta_path.insert(0, Refused())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

ROWS = "".join(f"{number * 1.5},{number * 1.25}\n" for number in range(20))
WIDE_NAMES = ",".join(f"a_long_name_of_column_{number}" for number in range(12_000)) + ",price"


def check_answer(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Assert that a command line is refused with these words, or not at all without any."""
    if not message:
        answer(arguments)
        return
    with pytest.raises(SystemExit):
        answer(arguments)
    assert message in capsys.readouterr().err


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_the_file_describes_the_scripts_as_they_are() -> None:
    """In a process of its own, since scripts may not be imported here twice."""
    program = """
import sys, importlib.util
from pathlib import Path
from gpflow_deep_runs.cli.described import FILE, descriptions_of, stored
found = {}
for path in sorted(Path("scripts").glob("*.py")):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    found |= descriptions_of(path.stem, module)
print("EQUAL" if stored(found) == FILE.read_text(encoding="utf-8") else "DIFFERENT")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[-1] == "EQUAL", f"write {FILE} anew: python -m gpflow_deep_runs.cli.described"


@dataclass(frozen=True)
class Flags:
    """What it does.

    :param rate: a number.
    :param kind: a choice.
    :param sizes: several.
    :param names: several words.
    :param is_on: a truth.
    :param again: a truth or a word.
    :param path: may be missing.
    """

    rate: float = 0.5
    kind: Literal["a", "b"] = "a"
    sizes: tuple[int, ...] = (3, 4)
    names: tuple[str, ...] = ()
    is_on: bool = False
    again: bool | Literal["auto"] = False
    path: str | None = None


def test_a_description_that_was_stored_shows_the_same_help(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Script:
        @staticmethod
        def main(flags: Flags) -> None:
            """Nothing."""

    path = tmp_path / "flags.json"
    path.write_text(stored(descriptions_of("toy", Script)), encoding="utf-8")
    monkeypatch.setattr("gpflow_deep_runs.cli.described.FILE", path)
    (description,) = load().values()
    assert [flag[2:] for flag in description.flags] == [flag[2:] for flag in named_flags(Flags)]
    with pytest.raises(SystemExit) as stop:
        answer(["toy.py", "--help"])
    assert stop.value.code == 0
    path.unlink()
    answer(["toy.py", "--help"])  # nothing is known: the program itself answers


def test_help_is_that_of_the_program(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Script:
        @staticmethod
        def main(flags: Flags) -> None:
            """Nothing."""

    known = descriptions_of("toy", Script)
    monkeypatch.setattr("gpflow_deep_runs.cli.described.load", lambda: known)
    with pytest.raises(SystemExit):
        answer(["some/folder/toy.py", "--help"])
    assert capsys.readouterr().out.strip() == help_text(Flags, "toy.py").strip()
    answer(["toy.py", "--rate=2", "--sizes=1,2", "--is_on"])  # all is right
    answer(["another.py", "--help"])  # another program


def test_an_interpreter_of_another_kind() -> None:
    """A locale without ± loses no line, and what Keras cannot do without is said."""
    program = "import gpflow_deep_runs.early; print('2 ± 1 ß')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    start = functools.partial(subprocess.run, capture_output=True, text=True, env=environment)
    assert start([sys.executable, "-c", program]).stdout == "2 \\xb1 1 \\xdf\n"
    bare = start([sys.executable, "-OO", "-c", program])
    assert (bare.returncode, bare.stdout) == (2, "")
    assert bare.stderr.endswith("Keras needs docstrings; leave out -OO, or PYTHONOPTIMIZE=2.\n")


@pytest.mark.parametrize(
    ("script", "flags", "status", "message"),
    [
        ("train_dgp.py", ["--help"], 0, "--num_layers"),
        ("train_dgp.py", ["--runn_dir=a"], 2, "Did you mean: run_dir"),
        ("track_rbm.py", ["--run_dir=a", "--num_steps=many"], 2, "num_steps"),
        ("train_darn.py", [], 2, "--run_dir must be given"),
        (
            "train_ebp.py",
            ["--run_dir=a", "--data=tests/conftset.py"],
            2,
            "no such file or folder (there is conftest.py)",
        ),
        ("compress_network.py", ["--run_dir=a", "--data=nowhere/x.csv"], 2, "nowhere is none, either"),
        ("compress_with_darn.py", ["encode", "--x=1"], 2, "Unknown command line flag 'x'"),
        ("predict_dgp.py", ["stray"], 2, "all arguments must be flags"),
        ("track_rbm.py", [f"--run_dir={'x' * 300}", "--dataset=adult"], 2, "file name too long; check the path."),
    ],
)
def test_before_tensorflow_starts(script: str, flags: list[str], status: int, message: str) -> None:
    done = run(f"scripts/{script}", *flags)
    assert (done.returncode, message in done.stdout + done.stderr) == (status, True), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if status:
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("script", "flags", "status", "message"),
    [
        ("train_dgp.py", ["--run_dir="], 2, "--run_dir must not be empty"),
        ("train_dgp.py", ["--run_dir=a", "--num_steps=0"], 2, "--num_steps must be between 1 and 2**31 - 1, got 0."),
        ("train_dgp.py", ["--run_dir=a", "--learning_rate=-0.5"], 2, "got -0.5"),
        ("train_dgp.py", ["--run_dir=a", "--seed=-1"], 2, "seed must be from 0 to 2**62 - 1, got -1"),
        ("train_dgp.py", ["--run_dir=a", "--valid_fraction=1.2"], 2, "--valid_fraction must be in [0, 1), got 1.2"),
        ("train_dgp.py", ["--run_dir=a", "--compare=svm,gp"], 2, "--compare may list gp and linear, got svm"),
        ("train_ebp.py", ["--run_dir=a", "--weights="], 2, "weights may list real, binary, ternary, each once"),
        ("train_ebp.py", ["--run_dir=a", "--hidden=9,0"], 2, "such as 500,500, got 9,0"),
        ("train_darn.py", ["--run_dir=a", "--hidden=-5"], 2, "at least 1, got (-5,)"),
        ("train_darn.py", ["--run_dir=a", "--momentum=-1"], 2, "momentum must be"),
        ("track_rbm.py", ["--run_dir=a", "--learning_rate=0"], 2, "learning_rate must be positive"),
        ("compress_network.py", ["--run_dir=a", "--network=resnet"], 2, "lenet5, got 'resnet'"),
        ("train_dgp.py", ["--run_dir=tests"], 2, "must be a new or empty folder"),
        ("train_dgp.py", ["--run_dir=README.md/a"], 2, "README.md is a file"),
        ("train_dgp.py", ["--run_dir=a", "--dataset=bosten"], 2, "did you mean boston?"),
        ("train_dgp.py", ["--run_dir=a", "--dataset=boston"], 2, "no --data_dir was given"),
        ("train_dgp.py", ["--run_dir=a", "--dataset=boston", "--data=README.md"], 2, "not both"),
        ("train_dgp.py", ["--run_dir=a", "--data=x.csv", "--resume"], 2, "holds no run to resume"),
        ("predict_dgp.py", ["--run_dir=tests", "--data=README.md"], 2, "tests has no inputs.json"),
        ("predict_dgp.py", ["--run_dir=test", "--data=README.md"], 2, "there is tests"),
        ("train_dgp.py", ["--run_dir=a", "--dataset=boston", "--target=x"], 2, "--target describes your own table"),
        ("train_dgp.py", ["--run_dir=a", "--latent_dim=2", "--posterior=sghmc"], 2, "got posterior=sghmc; leave one"),
        (
            "train_dgp.py",
            ["--run_dir=a", "--data=y", "--target=x", "--latent_dim=2", "--posterior=global"],
            2,
            "leave",
        ),
        ("track_rbm.py", ["--run_dir=a", "--seed=3", "--notrack", "--patience=5"], 2, "leave out --notrack"),
        ("train_darn.py", ["--run_dir=a", "--conditional_units=9"], 2, "conditional_units=9 is for the conditionals"),
        ("train_darn.py", ["--run_dir=a", "--strategy=mirrored"], 2, "--hidden must be given with"),
        ("compress_network.py", ["--run_dir=a", "--replicas=2"], 2, "needs --strategy=mirrored, got 2 and none"),
        ("compress_with_darn.py", [], 2, "say decode or encode"),
        ("compress_network.py", ["--run_dir=a", "--network=x.keras"], 2, "--network=x.keras: no such file"),
        ("compress_with_darn.py", ["--help"], 0, "compress_with_darn.py encode"),
    ],
)
def test_what_is_wrong_is_said_in_words(
    script: str,
    flags: list[str],
    status: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as stop:
        answer([script, *flags])
    said = capsys.readouterr()
    assert (stop.value.code, message in said.out + said.err) == (status, True), said.out + said.err
    if status:
        assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("script", ["train_dgp.py", "compress_with_darn.py"])
def test_help_that_nobody_reads_to_its_end_is_no_error(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)  # as `| head` does
    with open(write_end, "w", encoding="utf-8") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with pytest.raises(SystemExit) as stop:
            answer([script, "--help"])
        pipe.write("the rest, at the end of the interpreter")
    assert stop.value.code == 0


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ("", ["--target=price"], "houses.csv is empty"),
        ("area,price\n", ["--target=price"], "no rows below it"),
        ("area,price\n1,2\n3,4\n", ["--target=pricee"], "got 'pricee'; did you mean price?"),
        ("area,price\n1,2\n3,4\n", ["--target=price", "--dates=day:dmy"], "--dates must name columns of"),
        ("1.5e3;-2\n", ["--target=x1"], "at least 2 rows"),  # one row of numbers
        (f"{WIDE_NAMES}\n", ["--target=price"], "too many columns"),
        (f"area,price\n{ROWS}x,5\n", ["--target=price"], "'x' in row 20"),
        (f"area,price\n{ROWS},5\n", ["--target=price", "--missing=error"], "missing values in 'area' (1)"),
        (f"area,price\n{ROWS}", ["--target=price", "--features=area", "--compare=gp,linear"], ""),
        (f"a note\n\narea,the price\n{ROWS}", ["--target=the price"], ""),
        (ROWS, ["--target=price", "--names=area,price"], ""),
    ],
    ids=["empty", "names", "near", "dates", "row", "wide", "text", "missing", "lists", "note", "given"],
)
def test_tables_that_are_empty_and_columns_that_are_not_there(
    text: str, flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "houses.csv").write_text(text)
    arguments = ["train_dgp.py", f"--run_dir={tmp_path / 'run'}", f"--data={tmp_path / 'houses.csv'}", *flags]
    check_answer(arguments, message, capsys)


@pytest.mark.parametrize(
    ("script", "flags", "message"),
    [
        ("train_ebp.py", ["--target=price"], ""),  # its own words, later: the target is a number
        ("train_ebp.py", ["--target=kind", "--missing=error"], "missing values in 'area' (1)"),
        ("train_darn.py", ["--missing=impute", "--bins=4"], ""),
        ("train_darn.py", ["--missing=error"], "missing values in 'area' (1)"),
        ("track_rbm.py", ["--missing=impute", "--features=area"], "must be 0 or 1 everywhere"),
        ("track_rbm.py", ["--visible=gaussian", "--features=area,price"], "as its units miss no values"),
        ("train_dgp.py", ["--stream", "--target=price", "--missing=error"], ""),  # a stream is read once
    ],
)
def test_tables_are_read_as_the_script_reads_them(
    script: str, flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ROWS.splitlines()
    lines = ["area,price,kind", *(f"{row},{'ab'[number % 2]}" for number, row in enumerate(rows)), ",5,a"]
    (tmp_path / "houses.csv").write_text("\n".join(lines))
    arguments = [script, f"--run_dir={tmp_path / 'run'}", f"--data={tmp_path / 'houses.csv'}", *flags]
    check_answer(arguments, message, capsys)


def test_new_rows_are_read_as_the_run_reads_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pd.DataFrame({"area": np.arange(20) * 1.5, "port": list("CQ") * 10, "price": np.arange(20) * 1.25})
    schema = read_table(table, TableSpec(target=("price",))).schema
    assert schema is not None
    (tmp_path / "inputs.json").write_text(json.dumps({"schema": schema.to_json()}))
    new = tmp_path / "new.csv"
    arguments = ["predict_dgp.py", f"--run_dir={tmp_path}", f"--data={new}"]
    table.drop(columns="price").to_csv(new, index=False)
    answer(arguments)
    table.drop(columns="port").to_csv(new, index=False)
    check_answer(arguments, "lacks 'port'", capsys)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--help"], 0, "gpflow-deep VERB --help"),
        ([], 2, "train a deep Gaussian process"),
        (["learn"], 2, "did you mean train?"),
        (["xyz"], 2, "say one of train, predict"),
    ],
)
def test_one_command_for_all(arguments: list[str], status: int, message: str) -> None:
    done = run("gpflow_deep_runs/command.py", *arguments)
    assert done.returncode == status
    assert message in done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["train_darn.py", "--strategy=mirrored", "--replicas=2", "--hidden=8"],
        ["train_dgp.py", "--posterior=sigma_points", "--sigma_points=3", "--kl_weight=0.5"],
        ["train_dgp.py", "--preset=paper2017", "--nowhiten", "--noise_variance=0.1"],
        ["track_rbm.py", "--schedule=paper", "--learning_rate_decay=10"],
    ],
)
def test_flags_that_go_together_are_left_to_the_script(arguments: list[str], tmp_path: Path) -> None:
    answer([*arguments, f"--run_dir={tmp_path / 'run'}"])


@dataclass(frozen=True)
class Contrary:
    """Flags that do not go together.

    :param rate: needs a way that has one.
    :param way: the way.
    :param is_fast: not with every rate.
    """

    rate: float | None = None
    way: Literal["plain", "rated", "slow"] = "plain"
    is_fast: bool = False

    def __post_init__(self) -> None:
        if self.rate is not None and self.way == "plain":
            raise ValueError(f"rate={self.rate} needs way=rated.")
        if self.is_fast and self.way == "slow":
            raise ValueError("is_fast needs another way than slow.")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, ""),
        ({"rate": 0.25}, "rate=0.25 needs way=rated."),
        ({"rate": 0.25, "way": "rated"}, ""),
        ({"rate": 0.25, "is_fast": True}, "rate=0.25 needs way=rated."),
        ({"is_fast": True, "way": "slow"}, "is_fast needs another way than slow."),
        ({"is_fast": True, "way": "slow", "rate": 9.0}, "is_fast needs another way than slow."),
        ({"is_fast": True, "way": "rated"}, ""),
    ],
)
def test_flags_that_contradict_each_other_are_found(values: dict[str, Any], message: str) -> None:
    flags = list(named_flags(Contrary))
    known = contradictions.found(Contrary, flags)
    assert all(contradictions.holds(Contrary, flags, each) for each in known)
    given = {flag.name: values.get(flag.name, flag.default) for flag in flags}
    assert contradictions.objection(known, flags, given) == message


def test_each_verb_is_a_script_that_is_described() -> None:
    names = {key.partition(" ")[0] for key in json.loads(FILE.read_text(encoding="utf-8"))}
    assert {script for script, _ in VERBS.values()} == names - {"record_atari"}


def test_every_flag_says_what_it_is() -> None:
    short = [f"{name} --{flag.name}" for name, each in load().items() for flag in each.flags if not flag.help.strip()]
    assert short == []


def test_a_run_that_is_continued_with_other_flags_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flags of a run, as the script keeps them, are those of its description."""
    (tmp_path / "checkpoints" / "step-0000000001").mkdir(parents=True)
    own = ["--num_layers=3", "--dataset=diabetes", "--resume"]
    description = load()["train_dgp"]
    values = read(description, [f"--run_dir={tmp_path}", *own], "train")
    kept = text_of(description, {flag.name: values[flag.name].value for flag in description.flags})
    (tmp_path / "flags.txt").write_text(kept)
    answer(["gpflow-deep train", f"--run_dir={tmp_path}", "--num_steps=9", *own])
    with pytest.raises(SystemExit):
        answer(["gpflow-deep train", f"--run_dir={tmp_path}", "--dataset=diabetes", "--resume"])
    assert "but --num_layers=3 is now (not set)" in capsys.readouterr().err
    # A run of another program has flags that this one does not know.
    with pytest.raises(SystemExit):
        answer(["gpflow-deep ebp", f"--run_dir={tmp_path}", "--dataset=breast_cancer", "--resume"])
    assert f"a run of this program, but that in {tmp_path} has --ard; give" in capsys.readouterr().err

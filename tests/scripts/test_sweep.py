"""Sweeps by the script: what is refused before anything starts, and two settings on two splits of a small table."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_base.storage.locks import lock
from gpflow_deep_runs.sweeps import SweepDir, expand, parse
from scripts import sweep
from tests.scripts.running import SCRIPTS, Finished, called, checkpoints, command, environment, run

FILE = """
script = "train_dgp.py"
[flags]
data = "small.csv"
target = "y"
num_steps = 5
batch_size = 20
num_inducing = 5
num_predict_samples = 3
valid_fraction = 0
[axes]
split = [0, 1]
[settings]
dgp2 = {num_layers = 2, compare = "gp,linear"}
dgp3 = {num_layers = 3, compare = ""}
[table]
baseline = "GP"
[table.columns]
linear = {setting = "dgp2", model = "linear"}
GP = {setting = "dgp2", model = "gp"}
DGP2 = {setting = "dgp2", model = "dgp"}
DGP3 = {setting = "dgp3", model = "dgp"}
[table.numbers]
"test RMSE" = "models.{model}.test.rmse"
"""
COMMON = (
    "--data=small.csv --target=y --num_steps={num_steps} --batch_size=20 --num_inducing=5 --num_predict_samples=3 "
    "--valid_fraction=0"
)
"""What all runs have."""


def written(folder: Path, text: str = FILE) -> Path:
    x = np.linspace(-1.0, 1.0, 60)
    pd.DataFrame({"x": x, "y": np.sin(5.0 * x)}).to_csv(folder / "small.csv", index=False)
    (folder / "small.toml").write_text(text)
    return folder


def call(folder: Path, *arguments: str) -> Finished:
    return called(sweep.main, "sweep.py", folder, arguments)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("num_steps = 5", "num_step = 5", "the flags of the run split0-dgp2: Unknown command line flag 'num_step'"),
        ("num_steps = 5", 'num_steps = "many"', "the flags of the run split0-dgp2: flag --num_steps=many: invalid"),
        ("num_steps = 5", "num_steps = 0", "--num_steps must be between 1 and"),
        ("num_layers = 3, ", "num_layers = 3, compare_with = 1, ", "the run split0-dgp3: Unknown command line flag"),
        ("train_dgp.py", "train_gp.py", "script must be one of compress_network.py, .* got 'train_gp.py'"),
        ("train_dgp.py", "predict_dgp.py", "script must be one that trains, .* got 'predict_dgp.py'"),
        ("train_dgp.py", "compress_with_darn.py", "script must be one that trains"),
        ("[flags]", "[flag]", "small.toml: the file has no 'flag'"),
    ],
)
def test_wrong_files_are_refused_before_anything_starts(tmp_path: Path, old: str, new: str, message: str) -> None:
    done = call(written(tmp_path, FILE.replace(old, new)), "small.toml")
    assert done.code == 2
    assert done.err.startswith("sweep.py: error: ")
    assert done.err.count("\n") == 1
    assert re.search(message, done.err), done.err
    assert not (tmp_path / "runs").exists()


def test_the_command_line(tmp_path: Path) -> None:
    folder = written(tmp_path)
    assert "--file must be given" in call(folder).err
    assert "got 'more.toml'" in call(folder, "small.toml", "more.toml").err
    assert "absent.toml: no such file or directory" in call(folder, "absent.toml").err
    assert "--jobs must be at least 1, got 0" in call(folder, "small.toml", "--jobs=0").err
    assert "sweep.py: Run data sets" in call(folder, "--help").out


def test_dry_run_prints_commands_that_can_be_called(tmp_path: Path) -> None:
    done = call(written(tmp_path), "small.toml", "--dry_run", "--threads=2", "--data_dir=there")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert len(lines) == 4
    assert lines[1] == (
        f"train_dgp.py --run_dir=runs/small/runs/split0-dgp3 {COMMON.format(num_steps=5)} --split=0 --num_layers=3 "
        "--compare= --data_dir=there --threads=2  # new"
    )
    assert call(written(tmp_path), "--file=small.toml", "--dry_run").out.splitlines()[0].endswith("--threads=1  # new")
    own = FILE.replace("[axes]", "threads = 4\n[axes]")
    assert "--threads=4" in call(written(tmp_path, own), "small.toml", "--dry_run", "--threads=2").out
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "file", sorted((SCRIPTS.parent / "results" / "sweeps").glob("*.toml")), ids=lambda file: file.stem
)
def test_the_sweeps_of_the_results_have_flags_that_their_scripts_take(tmp_path: Path, file: Path) -> None:
    done = call(tmp_path, str(file), "--dry_run", "--data_dir=there")
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("script", ["train_dgp", "train_darn", "train_ebp", "track_rbm", "compress_network"])
def test_every_training_script_can_be_swept(tmp_path: Path, script: str) -> None:
    text = f'script = "{script}.py"\n[axes]\nseed = [0, 1]\n[settings]\na = {{checkpoint_seconds = 5}}\nb = {{}}\n'
    done = call(written(tmp_path, text), "small.toml", "--dry_run")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[3] == f"{script}.py --run_dir=runs/small/runs/seed1-b --seed=1 --threads=1  # new"


def test_a_second_sweep_is_refused(tmp_path: Path) -> None:
    with lock(tmp_path / "runs" / "small"):
        done = call(written(tmp_path), "small.toml")
    assert done.code == 2
    assert "--sweep_dir=runs/small is in use by process" in done.err
    assert sorted(path.name for path in (tmp_path / "runs" / "small").iterdir()) == [".lock"]


def test_tables_only_of_the_sweep_of_the_file(tmp_path: Path) -> None:
    folder = written(tmp_path)
    done = call(folder, "small.toml", "--table_only")
    assert (done.code, done.out) == (2, "")
    assert "--sweep_dir=runs/small holds no sweep yet; run it first" in done.err
    assert not (folder / "runs").exists()
    kept = SweepDir(folder / "runs" / "small")
    content = parse(FILE)
    with kept.opened(content, expand(content), {}):
        pass
    kept.run_dir("split1-dgp2").mkdir()
    result = {"models": {name: {"test": {"rmse": 0.5}} for name in ("linear", "gp", "dgp")}}
    (kept.run_dir("split1-dgp2") / "result.json").write_text(json.dumps(result))
    done = call(folder, "small.toml", "--table_only")
    assert (done.code, done.err) == (0, "")
    assert done.out.count("0.500 (1 of 2)") == 3
    assert done.out.count("missing") == 2
    assert (kept.path / "table.txt").read_text() == done.out
    other = call(written(folder, FILE.replace("num_steps = 5", "num_steps = 6")), "small.toml", "--table_only")
    assert "has the run split1-dgp2 --num_steps=5, the file has it --num_steps=6" in other.err
    no_table = call(written(folder, FILE.partition("[table]")[0]), "small.toml", "--table_only")
    assert "has no [table]" in no_table.err


@pytest.mark.slow
@pytest.mark.ci
def test_a_sweep_of_deep_gps(tmp_path: Path) -> None:
    """Killed in the middle and continued: the numbers are those of a run by hand."""
    folder = written(tmp_path, FILE.replace("num_steps = 5", "num_steps = 200\ncheckpoint_every = 20"))
    words = ["small.toml", "--jobs=2"]
    process = subprocess.Popen(
        command("sweep.py", words), cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not checkpoints(folder):
        time.sleep(0.01)
    process.kill()
    _, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, err
    done = run("sweep.py", words, folder)
    assert done.code == 0, done.err
    assert "continued: split0-dgp" in done.out
    assert "4 of 4 runs are done, in runs/small" in done.out
    table = (folder / "runs" / "small" / "table.txt").read_text()
    assert table in done.out
    record = json.loads((folder / "runs" / "small" / "table.json").read_text())
    cells = {cell["column"]: cell for cell in record["cells"]}
    own = ["--split=0", "--num_layers=2", "--compare=gp,linear", "--threads=1"]
    flags = [*COMMON.format(num_steps="200 --checkpoint_every=20").split(), *own]
    assert run("train_dgp.py", ["--run_dir=hand", *flags], folder).code == 0
    models = json.loads((folder / "hand" / "result.json").read_text())["models"]
    for column, model in (("linear", "linear"), ("GP", "gp"), ("DGP2", "dgp")):
        assert cells[column]["values"][0] == {"split": 0, "run": "split0-dgp2", "value": models[model]["test"]["rmse"]}
    assert [cells[name]["n"] for name in ("linear", "GP", "DGP2", "DGP3")] == [2, 2, 2, 2]
    found = record["runs"]["split0-dgp2"]
    assert found["command"] == " ".join(["train_dgp.py", "--run_dir=RUN", *flags])
    assert found["seconds"] > 0
    assert found["machine"]

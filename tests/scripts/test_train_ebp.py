"""`scripts/train_ebp.py` from the command line, on tiny data: what it prints and leaves behind, and its errors."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ebp.coding import InputCoding
from ebp.packed import PackedNetwork
from experiment.seeds import numpy_rng
from tests.scripts.running import Finished, command, environment, run_many

SMALL = ["--hidden=6", "--folds=3", "--noprogress"]
RIVALS = "bp_ce,bp_mse,bp_clipped,arow"


def _write_tables(folder: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4))
    sick = pd.DataFrame(x, columns=list("abcd")).assign(sick=np.where(x[:, 0] > 0.1, "yes", "no"))
    sick.to_csv(folder / "sick.csv", index=False)
    sick.assign(a=np.where(np.arange(90) == 7, np.nan, x[:, 0])).to_csv(folder / "missing.csv", index=False)
    kinds = np.array(["ape", "bee", "cow"])[np.digitize(x[:, 0], [-0.5, 0.5])]
    sick.assign(sick=kinds).to_parquet(folder / "kinds.parquet", index=False)
    np.savez(folder / "line.npz", X=x, y=x[:, 0] + x[:, 1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train")
    _write_tables(folder)
    return folder


BINARY = ["--data=sick.csv", "--target=sick"]
CALLS: dict[str, list[str]] = {
    "all": [
        *BINARY,
        "--weights=real,binary,ternary",
        "--seeds=2",
        f"--methods=ebp,{RIVALS}",
        "--export=all.ebp",
        *SMALL,
    ],
    "classes": [
        "--data=kinds.parquet",
        "--target=sick",
        "--epochs=2",
        f"--methods=ebp,{RIVALS}",
        "--max_folds=2",
        *SMALL,
    ],
    "softmax": ["--data=kinds.parquet", "--target=sick", "--epochs=2", "--softmax", *SMALL],
    "signs": [*BINARY, "--input_coding=sign", "--votes=3", "--export=signs.ebp", "--hidden=5,4", *SMALL[1:]],
    "linear": [*BINARY, "--hidden=", "--dtype=float64", *SMALL[1:]],
    "rivals": [*BINARY, "--methods=arow", *SMALL],
}

ERRORS: list[tuple[list[str], str]] = [
    ([*BINARY, "--weights=quaternary"], "--weights may list real, binary, ternary, got quaternary"),
    ([*BINARY, "--methods="], "--methods may list ebp, .* got nothing"),
    ([*BINARY, "--hidden=5,-2"], "--hidden must list positive widths such as 500,500, got 5,-2"),
    ([*BINARY, "--softmax"], "--softmax needs more than two classes"),
    ([*BINARY, "--weights=real", "--export=x.ebp"], "--export writes a network of binary weights"),
    ([*BINARY, "--input_coding=raw", "--export=x.ebp"], "--export needs inputs with exact sums"),
    ([*BINARY, "--input_coding=log"], "--input_coding must be one of raw, .*, got 'log'"),
    ([*BINARY, "--folds=91"], "number of folds must be from 2 to 90"),
    (["--data=line.npz"], "is a number, and this script classifies; give --task"),
    (["--data=missing.csv", "--target=sick"], "missing values in 'a' \\(1\\)"),
    (["--data=nothing.csv", "--target=sick"], "there is none at nothing.csv"),
    (["--dataset=no_such_data"], "--dataset must be one of amazon_.*got 'no_such_data'"),
    (["--dataset=reuters_i6"], "needs reuters_i6.npz, and no --data_dir was given"),
    (["--dataset=mnist"], "data set 'mnist' needs .*--data_dir"),
    (["--target=price"], "--target and --task describe your own table"),
    ([*BINARY, "stray"], "all arguments must be flags, --name=value, got 'stray'"),
    ([*BINARY, "--resume"], "holds no run to resume"),
]


@pytest.fixture(scope="module")
def finished(folder: Path) -> dict[str, Finished]:
    """All of `CALLS` and `ERRORS`, and attempts to go on with the run "classes"."""
    calls = {name: [f"--run_dir={name}", *call] for name, call in CALLS.items()}
    calls |= {f"error {i}": [f"--run_dir=error{i}", *call] for i, (call, _) in enumerate(ERRORS)}
    again = calls["classes"]
    calls |= {"again": again, "other flags": [*again, "--resume", "--seed=3"], "finished": [*again, "--resume"]}
    results = run_many("train_ebp.py", list(calls.values()), folder)
    return dict(zip(calls, results, strict=True))


def _result(folder: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((folder / name / "result.json").read_text()))


def _scalars(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_all_methods(folder: Path, finished: dict[str, Finished]) -> None:
    code, out, err = finished["all"]
    assert (code, err) == (0, "")
    result = _result(folder, "all")
    networks = [f"{weights} {output}" for weights in ("real", "binary", "ternary") for output in "DP"]
    assert list(result["models"]) == [*networks, *RIVALS.split(",")]
    assert result["layer_sizes"] == [4, 6, 1]
    for name, model in result["models"].items():
        errors = np.array(model["errors_percent"])
        assert errors.shape == ((2, 3, 3) if name in networks else (1, 3, 3))  # seeds, folds, epochs
        assert np.all((errors >= 0) & (errors <= 100))
        means = errors.mean(axis=1)
        assert model["last_percent"] == pytest.approx(means[:, -1].mean(), rel=1e-12)
        assert model["best_percent"] == pytest.approx(means.min(axis=1).mean(), rel=1e-12)
        spread = means[:, -1] if name in networks else errors[0, :, -1]
        error = spread.std(ddof=1) / np.sqrt(len(spread))
        assert model["last_standard_error"] == pytest.approx(error, rel=1e-12)
        assert errors[:, :, -1].mean() < 40 or name == "bp_clipped"  # chance is about 50
    for line in (r"^EBP real D +\d+\.\d\d ± \d", r"^BP, cross-entropy ", r"^AROW "):
        assert re.search(line, out, re.MULTILINE), line
    tags = set().union(*_scalars(folder / "all" / "scalars.jsonl"))
    some = {"test/error_d_percent", "train/log_evidence_nats", "layer_1/entropy_nats", "layer_2/decided_percent"}
    assert {f"binary/seed_0_fold_0/{tag}" for tag in some} <= tags
    assert {"real/seed_1_fold_2/test/error_p_percent", "arow/seed_0_fold_1/train/tuned_value"} <= tags
    assert (folder / "all" / "plots" / "errors.png").stat().st_size > 1000


def test_exported_network(folder: Path, finished: dict[str, Finished]) -> None:
    """It has the test error that the run reports, from raw inputs and the stored coding."""
    assert "the same outputs on all 30 test rows" in finished["all"].out
    rows = numpy_rng(0, "folds/90").permutation(90)[:30]  # the first fold's test rows
    table = pd.read_csv(folder / "sick.csv").iloc[rows]
    coding = InputCoding.from_json(json.loads((folder / "all" / "coding.json").read_text()))
    predicted = PackedNetwork.load(folder / "all.ebp").predict(coding.transform(table[list("abcd")].to_numpy()))
    error = 100 * np.mean(predicted != np.where(table["sick"] == "yes", 1, -1))
    assert error == pytest.approx(_result(folder, "all")["models"]["binary D"]["errors_percent"][0][0][-1], rel=1e-12)
    voting = PackedNetwork.load(folder / "signs.ebp")
    assert (voting.num_networks, voting.layer_sizes) == (3, (4, 5, 4, 1))


@pytest.mark.parametrize(
    ("name", "models", "sizes"),
    [
        ("classes", ["binary D", "binary P", *RIVALS.split(",")], [4, 6, 3]),
        ("softmax", ["binary D", "binary P"], [4, 6, 3]),
        ("signs", ["binary D", "binary P", "binary 3 votes"], [4, 5, 4, 1]),
        ("linear", ["binary D", "binary P"], [4, 1]),
        ("rivals", ["arow"], [4, 6, 1]),
    ],
)
def test_other_runs(
    name: str, models: list[str], sizes: list[int], folder: Path, finished: dict[str, Finished]
) -> None:
    assert (finished[name].code, finished[name].err) == (0, "")
    result = _result(folder, name)
    assert list(result["models"]) == models
    assert result["layer_sizes"] == sizes
    assert all(np.all(np.isfinite(model["errors_percent"])) for model in result["models"].values())


@pytest.mark.parametrize("number", range(len(ERRORS)), ids=[message for _, message in ERRORS])
def test_errors_are_one_line(number: int, folder: Path, finished: dict[str, Finished]) -> None:
    code, _, err = finished[f"error {number}"]
    assert code == 2
    assert re.fullmatch(rf"train_ebp\.py: error: .*{ERRORS[number][1]}.*\n", err), err
    assert not (folder / f"error{number}" / "result.json").exists()


def test_run_is_not_overwritten(finished: dict[str, Finished]) -> None:
    assert finished["again"].code == finished["other flags"].code == 2
    assert "already holds a run; give a new --run_dir, or --resume" in finished["again"].err
    assert "--seed=0 is now --seed=3" in finished["other flags"].err


def test_resuming_a_finished_run_changes_nothing(folder: Path, finished: dict[str, Finished]) -> None:
    """The same table again, and no step twice in the logs."""
    assert finished["finished"].code == 0
    pattern = re.compile(r"^(?:EBP|BP|AROW).*$", re.MULTILINE)
    assert pattern.findall(finished["finished"].out) == pattern.findall(finished["classes"].out)
    steps = [line["step"] for line in _scalars(folder / "classes" / "scalars.jsonl")]
    assert steps == list(range(1, 2 * (2 + 4) + 1))


def test_interrupted_run_resumes_bit_for_bit(folder: Path) -> None:
    """Ctrl-C somewhere, then a time limit in the middle of a fold: the same errors, logs and packed file."""
    call = [*BINARY, "--weights=binary,real", "--methods=ebp,arow", "--epochs=4", "--seeds=200", *SMALL]
    stopped = ["--run_dir=stopped", "--export=stopped.ebp", *call]
    scalars = folder / "stopped" / "scalars.jsonl"
    with subprocess.Popen(
        command("train_ebp.py", stopped), cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        for _ in range(1200):
            if process.poll() is not None or (scalars.exists() and scalars.stat().st_size > 0):
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    match = re.search(r"stopped by SIGINT after step (\d+); continue it with --resume", err)
    assert match, err
    limited = [*stopped, "--resume", "--max_seconds=0"]
    calls = [limited] * 6 + [["--run_dir=straight", "--export=straight.ebp", *call, "--max_seconds=3"]]
    *stops, straight = run_many("train_ebp.py", calls, folder)
    last = int(match[1])
    for done in stops:
        assert (done.code, f"after step {last + 1};" in done.err) == (0, True), done.err
        last += 1
    assert (straight.code, "max_seconds" in straight.err) == (0, True), straight.err
    logs = [_scalars(folder / name / "scalars.jsonl") for name in ("stopped", "straight")]
    assert [line["step"] for line in logs[0]] == list(range(1, last + 1))
    common = min(map(len, logs))
    assert common >= 6
    assert logs[0][:common] == logs[1][:common]
    if common >= 4:
        assert (folder / "stopped.ebp").read_bytes() == (folder / "straight.ebp").read_bytes()

"""`scripts/train_dgp.py` from the command line, on tiny data: what it prints and leaves behind, and its errors."""

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

from tests.scripts.running import Finished, command, environment, run_many

SMALL = [
    "--inducing=5",
    "--num_predict_samples=4",
    "--batch_size=20",
    "--noprogress",
    "--eval_every=2",
    "--log_every=1",
]


def _write_tables(folder: Path) -> None:
    rng = np.random.default_rng(0)
    size = rng.uniform(20, 90, 80)
    colour = rng.choice(["red", "blue"], 80)
    houses = pd.DataFrame({"size": size, "colour": colour, "price": 1e5 + 900 * size + 5e3 * rng.normal(size=80)})
    houses.to_csv(folder / "houses.csv", index=False)
    houses.assign(size=np.where(np.arange(80) == 7, np.nan, size)).to_csv(folder / "missing.csv", index=False)
    x = rng.normal(size=(80, 2))
    sick = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "sick": np.where(x[:, 0] > 0.3, "yes", "no")})
    sick.to_csv(folder / "sick.csv", index=False)
    kinds = np.array(["ape", "bee", "cow"])[np.digitize(x[:, 0], [-0.5, 0.5])]
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "kind": kinds}).to_csv(folder / "kinds.csv", index=False)
    np.savez(folder / "line.npz", X=x[:, :1], y=np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=80))
    np.savez(folder / "counts.npz", X=x[:, :1], y=rng.poisson(np.exp(x[:, 0])).astype(float))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train")
    _write_tables(folder)
    return folder


CALLS: dict[str, list[str]] = {
    "regression": ["--data=houses.csv", "--target=price", "--num_steps=4", "--compare=gp,linear", *SMALL],
    "binary": ["--data=sick.csv", "--target=sick", "--num_steps=2", "--layers=1", "--likelihood=softmax", *SMALL],
    "multiclass": ["--data=kinds.csv", "--target=kind", "--num_steps=2", "--preset=modern", "--compare=", *SMALL],
    "line": ["--data=line.npz", "--num_steps=2", "--float32", "--natgrad", "--compare=", "--valid_fraction=0", *SMALL],
    "limited": ["--data=counts.npz", "--likelihood=poisson", "--layers=1", "--max_seconds=0", "--max_rows=30", *SMALL],
    "diverged": ["--data=line.npz", "--layers=1", "--num_steps=50", "--learning_rate=1e200", *SMALL],
}

ERRORS: list[tuple[list[str], str]] = [
    (["--data=houses.csv", "--target=cost"], "--target must be a column of houses.csv, got 'cost'"),
    (["--data=houses.csv"], "--target must be a column"),
    (["--data=missing.csv", "--target=price"], "missing values in 'size' \\(1\\)"),
    (["--data=nothing.csv", "--target=price"], "there is none at nothing.csv"),
    (["--dataset=no_such_data"], "--dataset must be one of .*got 'no_such_data'"),
    (["--dataset=boston"], "data set 'boston' needs .*--data_dir"),
    (["--dataset=diabetes", "--target=price"], "--target and --task describe your own table"),
    (["--dataset=diabetes", "--likelihood=bernoulli"], "--likelihood must be one of gaussian, studentt, poisson"),
    (["--dataset=diabetes", "--likelihood=poisson", "--compare=tree"], "--compare may list gp and linear, got tree"),
    (["--data=line.npz", "--likelihood=poisson"], "--likelihood=poisson needs counts"),
    (["--dataset=wine", "--compare=linear"], "--compare=linear needs a regression"),
    (["--dataset=diabetes", "--preset=modern", "--noise_variance=1"], "need --preset=paper2017"),
    (["--dataset=diabetes", "stray"], "all arguments must be flags, --name=value, got 'stray'"),
    (["--dataset=diabetes", "--resume"], "holds no run to resume"),
]


@pytest.fixture(scope="module")
def finished(folder: Path) -> dict[str, Finished]:
    """All of `CALLS` and `ERRORS`, and attempts to go on with the run "regression"."""
    calls = {name: [f"--run_dir={name}", *call] for name, call in CALLS.items()}
    calls |= {f"error {i}": [f"--run_dir=error{i}", *call] for i, (call, _) in enumerate(ERRORS)}
    again = calls["regression"]
    calls["again"] = again
    calls["other flags"] = [*again, "--resume", "--learning_rate=0.02"]
    calls["finished"] = [*again, "--resume"]
    results = run_many("train_dgp.py", list(calls.values()), folder)
    return dict(zip(calls, results, strict=True))


def _result(folder: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((folder / name / "result.json").read_text()))


def _scalars(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_regression(folder: Path, finished: dict[str, Finished]) -> None:
    code, out, err = finished["regression"]
    assert (code, err) == (0, "")
    for line in (r"^linear  ", r"^GP \(1 layer\)  ", r"^deep GP \(2 layers\)  ", r"test log-likelihood +test RMSE"):
        assert re.search(line, out, re.MULTILINE), line
    result = _result(folder, "regression")
    assert list(result["models"]) == ["linear", "gp", "dgp"]
    for scores in result["models"].values():
        assert set(scores["test"]) == set(scores["valid"]) == {"log_likelihood_nats", "rmse"}
    assert result["models"]["dgp"]["num_steps"] == 4
    assert result["rows"] == {"train": 65, "valid": 7, "test": 8}
    files = {str(path.relative_to(folder / "regression")) for path in (folder / "regression").rglob("*")}
    for part in ("", "gp/"):
        assert {f"{part}model.npz", f"{part}plots/training.png", f"{part}plots/predicted_vs_true.png"} <= files
    tags = set().union(*_scalars(folder / "regression" / "scalars.jsonl"))
    assert {"train/elbo_nats", "test/rmse", "valid/log_likelihood_nats", "layer_1/kl_nats", "layer_2/jitter"} <= tags
    assert {"layer_1/lengthscale_2", "layer_1/noise_variance", "layer_1/condition_Kuu", "likelihood/variance"} <= tags


def test_units_are_those_of_the_data(folder: Path, finished: dict[str, Finished]) -> None:
    """The linear model is exact here: its noise has standard deviation 5000, its density 1/(5000 sqrt(2 pi e))."""
    scores = _result(folder, "regression")["models"]["linear"]["test"]
    assert 2_000 < scores["rmse"] < 10_000  # 5000, with 8 rows: a factor of two is more than 5 standard errors
    expected = -np.log(5_000 * np.sqrt(2 * np.pi * np.e))
    assert abs(scores["log_likelihood_nats"] - expected) < 1.5


@pytest.mark.parametrize(
    ("name", "scores"),
    [
        ("binary", {"log_likelihood_nats", "accuracy", "auc"}),
        ("multiclass", {"log_likelihood_nats", "accuracy"}),
        ("line", {"log_likelihood_nats", "rmse"}),
        ("limited", {"log_likelihood_nats", "rmse"}),
    ],
)
def test_other_tasks(name: str, scores: set[str], folder: Path, finished: dict[str, Finished]) -> None:
    assert (finished[name].code, finished[name].err) == (0, "")
    (model,) = _result(folder, name)["models"].values()
    assert set(model["test"]) == scores
    assert all(np.isfinite(value) for value in model["test"].values())
    assert ("valid" in model) == (name != "line")
    plots = {path.stem for path in (folder / name / "plots").iterdir()}
    if "accuracy" in scores:
        assert plots == {"training", "confusion_matrix"}
    else:
        assert plots == {"training", "predicted_vs_true", "fit"}


def test_time_limit_saves_and_reports(folder: Path, finished: dict[str, Finished]) -> None:
    result = _result(folder, "limited")
    assert finished["limited"].code == 0
    assert (result["models"]["gp"]["num_steps"], result["models"]["gp"]["is_finished"]) == (1, False)
    assert result["rows"]["train"] == 30
    assert len(list((folder / "limited" / "checkpoints").iterdir())) == 1


def test_divergence_is_one_clear_line(finished: dict[str, Finished]) -> None:
    code, _, err = finished["diverged"]
    assert code == 1
    assert re.fullmatch(r"train_dgp\.py: error: .*step.*Lower --learning_rate.*\n", err), err
    assert "{{node" not in err


@pytest.mark.parametrize("number", range(len(ERRORS)), ids=[message for _, message in ERRORS])
def test_errors_are_one_line(number: int, folder: Path, finished: dict[str, Finished]) -> None:
    code, _, err = finished[f"error {number}"]
    assert code == 2
    assert re.fullmatch(rf"train_dgp\.py: error: .*{ERRORS[number][1]}.*\n", err), err
    assert not (folder / f"error{number}" / "result.json").exists()


def test_run_is_not_overwritten(finished: dict[str, Finished]) -> None:
    assert finished["again"].code == finished["other flags"].code == 2
    assert "already holds a run; give a new --run_dir, or --resume" in finished["again"].err
    assert "--learning_rate=0.01 is now --learning_rate=0.02" in finished["other flags"].err


def test_resuming_a_finished_run_changes_nothing(folder: Path, finished: dict[str, Finished]) -> None:
    """The same table again, and no step twice in the logs."""
    assert finished["finished"].code == 0
    pattern = re.compile(r"^deep GP.*$", re.MULTILINE)
    assert pattern.findall(finished["finished"].out) == pattern.findall(finished["regression"].out)
    steps = [line["step"] for line in _scalars(folder / "regression" / "scalars.jsonl") if "test/rmse" in line]
    assert steps == [2, 4]


def test_interrupted_run_resumes_bit_for_bit(folder: Path) -> None:
    """N steps = k steps, Ctrl-C, --resume: the same parameters and scores in every bit."""
    call = ["--data=houses.csv", "--target=price", "--compare=", *SMALL]
    scalars = folder / "stopped" / "scalars.jsonl"
    arguments = command("train_dgp.py", ["--run_dir=stopped", "--num_steps=1000000", *call])
    with subprocess.Popen(
        arguments, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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
    num_steps = int(match[1]) + 3
    call.append(f"--num_steps={num_steps}")
    calls = [["--run_dir=stopped", "--resume", *call], ["--run_dir=straight", *call]]
    for done in run_many("train_dgp.py", calls, folder):
        assert done.code == 0, done.err
    with np.load(folder / "stopped" / "model.npz") as a, np.load(folder / "straight" / "model.npz") as b:
        assert set(a) == set(b)
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    stopped, straight = (_result(folder, name)["models"]["dgp"] for name in ("stopped", "straight"))
    assert stopped["test"] == straight["test"]
    elbos = [
        [
            (line["step"], line["train/elbo_nats"])
            for line in _scalars(folder / name / "scalars.jsonl")
            if "train/elbo_nats" in line
        ]
        for name in ("stopped", "straight")
    ]
    assert elbos[0] == elbos[1]

"""`scripts/train_darn.py` from the command line, on tiny data: what it prints and leaves behind, and its errors."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from darn.likelihood import exact_log_likelihood
from darn.serialization import load_darn
from tests.scripts.running import Finished, run, run_many, workers

SMALL = [
    "--batch_size=20",
    "--noprogress",
    "--log_every=10",
    "--eval_every=20",
    "--checkpoint_every=20",
    "--final_samples=2",
    "--is_samples=20",
    "--is_repeats=2",
]
TINY = ["--data=patterns.csv", "--hidden=3", "--tanh=4", *SMALL]
WHOLE = [*TINY, "--visible=linear", "--optimizer=rmsprop", "--average=0.9", "--lr_half_life=30"]
STOPPING = ["--early_stopping", "--patience=2"]
CALLS: dict[str, list[str]] = {
    "whole": ["--num_steps=40", *WHOLE],
    "half": ["--num_steps=20", *WHOLE],
    "images": ["--num_steps=10", "--hidden=20", "--sparsity=0.1", *SMALL],
    "stops": [
        "--data=noise.npz",
        "--num_steps=4000",
        "--learning_rate=0.1",
        "--early_stopping",
        "--patience=2",
        *TINY[1:],
    ],
    "fully visible": ["--data=patterns.csv", "--num_steps=10", "--hidden=", "--visible=linear", *SMALL],
    "limited": ["--num_steps=2000", "--max_seconds=0", *TINY],
    "diverged": ["--num_steps=40", "--learning_rate=1e38", *TINY],
}
ERRORS: list[tuple[list[str], str]] = [
    (["--data=real.csv"], "real.csv.*0 (or|and) 1"),
    (["--data=missing.csv"], "missing"),
    (["--dataset=no_such_data"], "no_such_data"),
    (["--dataset=adult"], "adult.*--data_dir"),
    (["--data=patterns.csv", "--target=x0"], "--target is for supervised scripts"),
    (["--data=patterns.csv", "--hidden=17", "--exact=yes"], "at most 16 stochastic units, got 17"),
    (["--data=patterns.csv", "--hidden=a"], "--hidden must be whole numbers"),
    (["--data=patterns.csv", "--hidden=0"], "hidden: numbers of units must be at least 1"),
    (["--data=patterns.csv", "--hidden=2,2", "--estimator=disarm"], "needs one stochastic layer"),
    (["--data=patterns.csv", "--local"], "--local needs images"),
    (["--dataset=adult", "--intensities"], "--intensities needs --dataset=digits or"),
    (["--data=patterns.csv", "stray"], "all arguments must be flags"),
    (["--data=patterns.csv", "--resume"], "holds no run to resume"),
    (["--data=patterns.csv", "--strategy=multi_worker"], "needs the environment variable TF_CONFIG"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("darn")
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 2, (2, 8))[rng.integers(0, 2, 200)] ^ (rng.uniform(size=(200, 8)) < 0.1)
    pd.DataFrame(patterns, columns=[f"x{i}" for i in range(8)]).to_csv(folder / "patterns.csv", index=False)
    pd.DataFrame(patterns + 0.5, columns=list("abcdefgh")).to_csv(folder / "real.csv", index=False)
    holes = np.where(rng.uniform(size=patterns.shape) < 0.1, np.nan, patterns)
    pd.DataFrame(holes, columns=list("abcdefgh")).to_csv(folder / "missing.csv", index=False)
    np.savez(folder / "noise.npz", X=rng.integers(0, 2, (60, 10)))
    return folder


@pytest.fixture(scope="module")
def finished(folder: Path) -> dict[str, Finished]:
    calls = {name: [f"--run_dir={name}", *call] for name, call in CALLS.items()}
    calls |= {
        "resumed": ["--run_dir=half", "--resume", *CALLS["whole"]],
        "resumed stop": ["--run_dir=stops", "--resume", *CALLS["stops"]],
        "again": ["--run_dir=whole", *CALLS["whole"]],
        "other model": ["--run_dir=whole", "--resume", *CALLS["whole"], "--hidden=7"],
    }
    calls |= {f"error {i}": ["--run_dir=error", *arguments] for i, (arguments, _) in enumerate(ERRORS)}
    results = run_many("train_darn.py", list(calls.values()), folder)
    return dict(zip(calls, results, strict=True))


def result_of(folder: Path, run: str) -> dict[str, Any]:
    return json.loads((folder / run / "result.json").read_text())


def lines_of(folder: Path, run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / run / "scalars.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", ["whole", "half", "images", "stops", "fully visible", "resumed"])
def test_a_run_ends_well(finished: dict[str, Finished], name: str) -> None:
    done = finished[name]
    assert done.code == 0, done.err
    assert "test negative log-likelihood:" in done.out


def test_results_hold_lengths_and_the_exact_likelihood(folder: Path, finished: dict[str, Finished]) -> None:
    del finished
    result = result_of(folder, "whole")
    model = load_darn(folder / "whole" / "darn.npz")
    assert result["model"] == json.loads(model.config.to_json())
    assert 0 < result["test/exact_nll_nats"] <= result["test/description_length_nats"] + 0.3
    for part in ("train", "valid", "test"):
        parts = sum(result[f"{part}/{name}_bits"] for name in ("hidden", "bits_back", "visible"))
        assert parts == pytest.approx(result[f"{part}/description_length_bits"])
        assert parts * np.log(2) == pytest.approx(result[f"{part}/description_length_nats"])
    scores = {line["step"]: line.get("valid/description_length_nats") for line in lines_of(folder, "whole")}
    evaluated = {step: score for step, score in scores.items() if score is not None}
    assert result["step"] == min(evaluated, key=lambda step: evaluated[step])
    table = pd.read_csv(folder / "patterns.csv").to_numpy()
    assert -exact_log_likelihood(model, table).mean() < 6


def test_scalars_are_logged_at_their_steps(folder: Path, finished: dict[str, Finished]) -> None:
    del finished
    lines = lines_of(folder, "whole")
    assert [line["step"] for line in lines] == [10, 20, 30, 40]
    for line in lines:
        assert {"train/batch_hidden_bits", "train/batch_visible_bits", "train/activity"} <= set(line)
        tags = {"valid/description_length_nats", "valid/bits_back_bits", "estimator/relative_std"}
        assert tags <= set(line) if line["step"] % 20 == 0 else not tags & set(line)
    assert any((folder / "whole" / "tensorboard").iterdir())


def test_stopping_and_resuming_gives_the_same_bits(folder: Path, finished: dict[str, Finished]) -> None:
    del finished
    assert lines_of(folder, "whole") == lines_of(folder, "half")
    whole, half = (load_darn(folder / run / "darn.npz") for run in ("whole", "half"))
    for variable, other in zip(whole.variables, half.variables, strict=True):
        np.testing.assert_array_equal(variable, other)
    assert result_of(folder, "whole")["test/exact_nll_nats"] == result_of(folder, "half")["test/exact_nll_nats"]


def test_images_get_samples_and_filters(folder: Path, finished: dict[str, Finished]) -> None:
    del finished
    for name in ("samples", "filters", "description_length"):
        assert (folder / "images" / "plots" / f"{name}.png").stat().st_size > 1000
    result = result_of(folder, "images")
    assert result["is_rows"] == 300
    low, high = result["test/is_nll_95_interval"]
    assert low <= result["test/is_nll_nats"] <= high
    assert result["multiplications_per_sample"] == pytest.approx(result["active_units_per_sample"] * 84)


def test_early_stopping_reports_the_best(folder: Path, finished: dict[str, Finished]) -> None:
    """A DARN of noise overfits: validation gets worse, and what is reported is from before that."""
    assert "stopped early" in finished["stops"].out
    result = result_of(folder, "stops")
    assert result["stopped_early"]
    assert result["step"] < result["steps"] < 4000
    assert finished["resumed stop"].code == 0  # nothing is trained any more
    assert result_of(folder, "stops")["step"] == result["step"]


def test_a_time_limit_leaves_a_checkpoint(folder: Path, finished: dict[str, Finished]) -> None:
    assert finished["limited"].code == 0
    assert "training was stopped by max_seconds after step" in finished["limited"].err
    assert list((folder / "limited" / "checkpoints").glob("step-*"))


def test_divergence_is_one_clear_error(finished: dict[str, Finished]) -> None:
    done = finished["diverged"]
    assert done.code == 1
    assert "finite after step" in done.err
    assert "Lower --learning_rate" in done.err
    assert "Traceback" not in done.err


def test_a_run_is_not_overwritten_or_mixed_up(finished: dict[str, Finished]) -> None:
    assert finished["again"].code == 2
    assert "--resume" in finished["again"].err
    assert finished["other model"].code == 2
    assert "hidden" in finished["other model"].err


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_bad_input_is_one_clear_error(finished: dict[str, Finished], number: int) -> None:
    done = finished[f"error {number}"]
    assert done.code == 2
    assert re.search(ERRORS[number][1], done.err.replace("\n", " ")), done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_devices_and_workers_share_the_work(folder: Path) -> None:
    """Two devices, and two processes that are started again, print what one device prints."""
    call = [*WHOLE, "--nofloat32", "--weight_noise=graves", *STOPPING]
    assert run("train_darn.py", ["--run_dir=one", "--num_steps=40", *call], folder).code == 0
    mirrored = run("train_darn.py", ["--run_dir=two", "--num_steps=40", "--strategy=mirrored", *call], folder)
    assert mirrored.code == 0, mirrored.err
    for steps, resume in ((20, []), (40, ["--resume"])):
        arguments = ["--run_dir=workers", f"--num_steps={steps}", "--strategy=multi_worker", *call, *resume]
        with workers("train_darn.py", folder, arguments) as both:
            for process in both:
                out, _ = process.communicate(timeout=240)
                assert process.returncode == 0, out
    one = lines_of(folder, "one")
    for name in ("two", "workers"):
        for line, expected in zip(lines_of(folder, name), one, strict=True):
            assert line == pytest.approx(expected, rel=1e-9, abs=1e-12)
    odd = run("train_darn.py", ["--run_dir=odd", "--strategy=mirrored", *call, "--batch_size=21"], folder)
    assert odd.code == 2
    assert "--batch_size must be a multiple of the 2 replicas, got 21" in odd.err

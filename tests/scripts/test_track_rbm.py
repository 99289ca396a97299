"""`scripts/track_rbm.py` from the command line, on tiny data: what it prints and leaves behind, and its errors."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rbm_tracking.exact import log_z_exact
from rbm_tracking.serialization import load_rbm
from rbm_tracking.tracker import TRAILS, flag_names
from tests.scripts.running import Finished, run_many

SMALL = [
    "--hidden=5",
    "--temps=3",
    "--chains=4",
    "--batch_size=20",
    "--noprogress",
    "--nojit",
    "--log_every=10",
    "--eval_every=20",
    "--checkpoint_every=20",
    "--ais_betas=40",
    "--final_ais_betas=60",
    "--ais_chains=10",
]
TRACKED = ["--data=patterns.csv", "--adaptive", "--centred", "--exact_every=20", "--ais_every=20", *SMALL]
CALLS: dict[str, list[str]] = {
    "whole": ["--updates=40", *TRACKED],
    "half": ["--updates=20", *TRACKED],
    "images": ["--updates=10", "--swaps=deo", "--gibbs_steps=2", "--bias=learned", "--generator=hash", *SMALL],
    "stops": ["--data=noise.npz", "--updates=4000", "--lr=0.2", "--early_stopping", "--patience=2", *SMALL],
    "spawns": [
        "--data=patterns.csv",
        "--updates=200",
        "--lr=0.5",
        "--track_chains=3",
        *SMALL,
        "--temps=2",
        "--spawn_up_to=4",
    ],
    "flagged": [
        *("--updates=300", "--lr=0.3", "--lr_decay=1e4", "--early_stopping"),
        *("--patience=20", "--ais_betas=300", "--final_ais_betas=300", "--hidden=12", *SMALL[1:]),
    ],
    "plain": ["--data=patterns.csv", "--updates=20", "--notrack", *SMALL],
    "limited": ["--data=patterns.csv", "--updates=2000", "--max_seconds=0", *SMALL],
    "diverged": ["--data=patterns.csv", "--updates=20", "--lr=1e38", *SMALL],
}
ERRORS: list[tuple[list[str], str]] = [
    (["--data=real.csv"], "real.csv.*0 (or|and) 1"),
    (["--data=missing.csv"], "missing"),
    (["--data=nothing.csv"], "nothing.csv"),
    (["--dataset=no_such_data"], "no_such_data"),
    (["--dataset=adult"], "adult.*--data_dir"),
    (["--data=patterns.csv", "--target=x0"], "--target is for supervised scripts"),
    (["--data=patterns.csv", "--early_stopping", "--notrack"], "--early_stopping needs the tracked log Z"),
    (["--data=patterns.csv", "stray"], "all arguments must be flags, --name=value, got 'stray'"),
    (["--data=patterns.csv", "--resume"], "holds no run to resume"),
]


def _write_tables(folder: Path) -> None:
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 2, (2, 8))[rng.integers(0, 2, 200)] ^ (rng.uniform(size=(200, 8)) < 0.1)
    pd.DataFrame(patterns, columns=[f"x{i}" for i in range(8)]).to_csv(folder / "patterns.csv", index=False)
    pd.DataFrame(patterns + 0.5, columns=list("abcdefgh")).to_csv(folder / "real.csv", index=False)
    holes = np.where(rng.uniform(size=patterns.shape) < 0.1, np.nan, patterns)
    pd.DataFrame(holes, columns=list("abcdefgh")).to_csv(folder / "missing.csv", index=False)
    np.savez(folder / "noise.npz", X=rng.integers(0, 2, (60, 10)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rbm")
    _write_tables(folder)
    return folder


@pytest.fixture(scope="module")
def finished(folder: Path) -> dict[str, Finished]:
    calls = {name: [f"--run_dir={name}", *call] for name, call in CALLS.items()}
    calls |= {
        "resumed": ["--run_dir=half", "--resume", *CALLS["whole"]],
        "resumed spawns": ["--run_dir=spawns", "--resume", *CALLS["spawns"], "--updates=220"],
        "resumed stop": ["--run_dir=stops", "--resume", *CALLS["stops"]],
        "again": ["--run_dir=whole", *CALLS["whole"]],
        "other model": ["--run_dir=whole", "--resume", *CALLS["whole"], "--hidden=7"],
    }
    calls |= {f"error {i}": ["--run_dir=error", *arguments] for i, (arguments, _) in enumerate(ERRORS)}
    results = run_many("track_rbm.py", list(calls.values()), folder)
    return dict(zip(calls, results, strict=True))


def result_of(folder: Path, run: str) -> dict[str, Any]:
    return json.loads((folder / run / "result.json").read_text())


def lines_of(folder: Path, run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / run / "scalars.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", ["whole", "half", "images", "stops", "spawns", "plain", "resumed"])
def test_a_run_ends_well(finished: dict[str, Finished], name: str) -> None:
    done = finished[name]
    assert done.code == 0, done.err
    assert "log-likelihoods: nats per row" in done.out
    assert re.search(r"^reverse_ais .*3 sigma", done.out, re.MULTILINE)


def test_results_hold_every_estimate(folder: Path, finished: dict[str, Finished]) -> None:
    del finished
    result = result_of(folder, "whole")
    saved = load_rbm(folder / "whole" / "rbm.npz")
    exact = log_z_exact(saved.rbm)
    assert result["exact"]["log_z_nats"] == pytest.approx(exact)
    assert result["tracked"]["log_z_nats"] == pytest.approx(saved.log_z)
    last = lines_of(folder, "whole")[-1]
    assert result["tracked"]["flags"] == flag_names(int(last["tracker/flags"]))
    assert result["tracked"]["lag_nats"] == last["tracker/lag_nats"]
    assert abs(saved.log_z - exact) < 5 * saved.log_z_std
    low, high = result["ais"]["three_sigma_nats"]
    assert low - 0.1 < exact < high + 0.1
    assert result["reverse_ais"]["log_z_nats"] == pytest.approx(exact, abs=0.5)
    for entry in (result["tracked"], result["exact"]):
        gap = entry["test_log_likelihood_nats"] + entry["log_z_nats"]
        assert gap == pytest.approx(result["ais"]["test_log_likelihood_nats"] + result["ais"]["log_z_nats"])
    assert result["tracking"]["num_exact"] == 2
    assert result["updates"] == saved.step == 40
    assert result["num_temps"] == 3
    plots = {path.name for path in (folder / "whole" / "plots").iterdir()}
    assert plots == {"log_z.png", "log_likelihood.png"}


def test_scalars_are_logged_at_their_steps(folder: Path, finished: dict[str, Finished]) -> None:
    del finished
    lines = lines_of(folder, "whole")
    assert [line["step"] for line in lines] == [10, 20, 30, 40]
    for line in lines:
        assert {"tracker/log_z_nats", "tracker/bias_nats", "tracker/nis", "swap/rate_02", "ladder/beta_03"} <= set(line)
        is_evaluated = line["step"] % 20 == 0
        tags = {"valid/log_likelihood_nats", "train/log_likelihood_nats", "ais/log_z_nats", "exact/log_z_nats"}
        assert tags <= set(line) if is_evaluated else not tags & set(line)
    assert any((folder / "whole" / "tensorboard").iterdir())


def test_stopping_and_resuming_gives_the_same_bits(folder: Path, finished: dict[str, Finished]) -> None:
    del finished
    assert lines_of(folder, "whole") == lines_of(folder, "half")
    whole, half = (load_rbm(folder / run / "rbm.npz") for run in ("whole", "half"))
    np.testing.assert_array_equal(whole.rbm.W, half.rbm.W)
    assert whole.log_z == half.log_z
    for entry in ("tracked", "exact", "ais", "reverse_ais"):
        assert result_of(folder, "whole")[entry] == result_of(folder, "half")[entry]


def test_images_have_filters_and_samples(folder: Path, finished: dict[str, Finished]) -> None:
    del finished
    assert (folder / "images" / "plots" / "filters_and_samples.png").stat().st_size > 1000


def test_early_stopping_reports_the_best(folder: Path, finished: dict[str, Finished]) -> None:
    """An RBM of noise overfits: validation gets worse, and what is reported is from before that."""
    assert "stopped early after update" in finished["stops"].out
    result = result_of(folder, "stops")
    assert result["stopped_early"]
    assert result["step"] < result["updates"] < 4000
    scores = {line["step"]: line for line in lines_of(folder, "stops") if "valid/log_likelihood_nats" in line}
    reported = scores[result["step"]]
    assert result["tracked"]["log_z_nats"] == pytest.approx(reported["tracker/log_z_nats"])
    lower = {}
    for step, line in scores.items():  # AIS takes the place of estimates that may be far off
        assert ("ais/ess" in line) == (int(line["tracker/flags"]) & ~TRAILS != 0)
        value, std = line["valid/log_likelihood_nats"], line["tracker/log_z_std_nats"]
        if "ais/ess" in line:
            value, std = line["valid/ais_log_likelihood_nats"], line["ais/log_z_std_nats"]
        lower[step] = value - 1.645 * std
    assert lower[result["step"]] == max(lower.values())
    assert finished["resumed stop"].code == 0  # nothing is trained any more
    assert result_of(folder, "stops")["step"] == result["step"]


def test_flagged_estimates_are_replaced_by_ais(folder: Path, finished: dict[str, Finished]) -> None:
    """At a learning rate that is far too high the tracked values rise on and on; what is chosen is good in truth."""
    assert finished["flagged"].code == 0, finished["flagged"].err
    result = result_of(folder, "flagged")
    scores = {line["step"]: line for line in lines_of(folder, "flagged") if "valid/log_likelihood_nats" in line}
    tracked = max(scores, key=lambda step: scores[step]["valid/log_likelihood_nats"])
    by_ais = {s: line["valid/ais_log_likelihood_nats"] for s, line in scores.items() if "ais/ess" in line}
    assert len(by_ais) > 5
    assert scores[tracked]["tracker/flags"] != 0
    assert by_ais[result["step"]] > by_ais[tracked] + 0.5
    assert result["exact"]["valid_log_likelihood_nats"] == pytest.approx(by_ais[result["step"]], abs=0.3)


def test_temperatures_are_added_and_restored(folder: Path, finished: dict[str, Finished]) -> None:
    assert finished["resumed spawns"].code == 0, finished["resumed spawns"].err
    result = result_of(folder, "spawns")
    assert 2 < result["num_temps"] <= 4
    assert "ladder/beta_03" in lines_of(folder, "spawns")[-1]
    assert result["updates"] == 220  # it was resumed with more temperatures than its flags say
    assert "tracked" not in result_of(folder, "plain")


def test_ctrl_c_or_a_time_limit_leave_a_checkpoint(folder: Path, finished: dict[str, Finished]) -> None:
    done = finished["limited"]
    assert done.code == 0
    assert "training was stopped by max_seconds after step" in done.err
    assert list((folder / "limited" / "checkpoints").glob("step-*"))


def test_divergence_is_one_clear_error(finished: dict[str, Finished]) -> None:
    done = finished["diverged"]
    assert done.code == 1
    assert "no longer finite after update" in done.err
    assert "Lower --lr" in done.err
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

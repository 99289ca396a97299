"""`scripts/track_rbm.py` on tiny data: what a run reports and leaves behind, that it goes on, and its errors."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpflow_deep_runs.cli.flags import parse, text
from rbm_tracking.model.exact import log_z_exact
from rbm_tracking.model.serialization import load_rbm
from rbm_tracking.track.evidence import flag_names
from rbm_tracking.track.settings import DecayConfig, PenaltyConfig, SMLConfig
from rbm_tracking.use.evaluation import mean_log_prob_unnormalised
from scripts.track_rbm import Flags, main
from tests.scripts.running import Finished, called, lines_of, result_of

SMALL = [
    "--num_temps=3",
    "--num_chains=4",
    "--batch_size=20",
    "--noprogress",
    "--nojit",
    "--log_every=10",
    "--eval_every=20",
    "--checkpoint_every=20",
    "--ais_betas=40",
    "--final_ais_betas=0",
    "--ais_chains=10",
    "--patience=0",
]
PAPER = ["--schedule=paper", "--target_chains=0", "--nocentred", "--l2=0", "--average=0"]
SMALL += PAPER
TINY = ["--data=patterns.npz", "--hidden=5", *SMALL]
WHOLE = [*TINY, "--adaptive", "--centred", "--exact_every=20", "--ais_every=20", "--final_ais_betas=60"]
STOPPING = ["--data=noise.npz", "--hidden=5", *SMALL, "--num_steps=4000", "--learning_rate=0.2", "--patience=2"]
ERRORS: list[tuple[list[str], str]] = [
    (["--data=real.csv"], "real.csv.*0 (or|and) 1"),
    (["--data=missing.csv", "--missing=error"], "missing values in"),
    (["--data=nothing.csv"], "nothing.csv"),
    (["--dataset=no_such_data"], "no_such_data"),
    (["--dataset=adult"], "adult.*--data_dir"),
    ([*TINY, "--patience=3", "--notrack"], "--patience needs the tracked log Z; leave out --notrack"),
    ([*TINY, "--patience=-1"], "--patience must be at least 0, got -1"),
    ([*TINY, "--eval_every=0"], "--eval_every must be at least 1, got 0"),
    ([*TINY, "--gibbs_steps=0"], "gibbs_steps must be at least 1, got 0"),
    ([*TINY, "--bias=some"], "--bias=some: value should be one of <both|learned|none>"),
    ([*TINY, "--hidden=0"], "--hidden must be at least 1, got 0"),
    ([*TINY, "--num_temps=1"], "--num_temps must be at least 2, got 1"),
    ([*TINY, "--num_track_chains=-1"], "--num_track_chains must be at least 0, got -1"),
    ([*TINY, "--ais_betas=few"], "ais_betas must be a number of at least 2, or paper, got 'few'"),
    ([*TINY, "--resume"], "holds no run to resume"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rbm")
    rng = np.random.default_rng(0)
    patterns = (rng.integers(0, 2, (2, 8))[rng.integers(0, 2, 200)] ^ (rng.uniform(size=(200, 8)) < 0.1)).astype(int)
    np.savez(folder / "patterns.npz", train=patterns[:150], valid=patterns[150:170], test=patterns[170:])
    pd.DataFrame(patterns + 0.5, columns=list("abcdefgh")).to_csv(folder / "real.csv", index=False)
    holes = np.where(rng.uniform(size=patterns.shape) < 0.1, np.nan, patterns)
    pd.DataFrame(holes, columns=list("abcdefgh")).to_csv(folder / "missing.csv", index=False)
    noise = rng.integers(0, 2, (60, 10))
    np.savez(folder / "noise.npz", train=noise[:30], valid=noise[30:44], test=noise[44:])
    return folder


def call(folder: Path, name: str, *arguments: str) -> Finished:
    """The script, called in this process and in `folder`, with --run_dir=`name`."""
    return called(main, "track_rbm.py", folder, [f"--run_dir={name}", *arguments])


@pytest.fixture(scope="module")
def whole(folder: Path) -> Finished:
    return call(folder, "whole", "--num_steps=40", *WHOLE)


@pytest.fixture(scope="module")
def stopped(folder: Path) -> Finished:
    return call(folder, "stopped", *STOPPING)


def test_results_hold_every_estimate_of_the_rows_they_name(folder: Path, whole: Finished) -> None:
    assert whole.code == 0, whole.err
    result, saved = result_of(folder, "whole"), load_rbm(folder / "whole" / "rbm.npz")
    exact, patterns = log_z_exact(saved.rbm), np.load(folder / "patterns.npz")
    assert result["exact"]["log_z_nats"] == pytest.approx(exact)
    assert result["tracked"]["log_z_nats"] == pytest.approx(saved.log_z)
    assert result["tracked"]["std_nats"] == pytest.approx(saved.log_z_std)
    last = lines_of(folder, "whole")[-1]
    assert result["tracked"]["flags"] == flag_names(int(last["tracker/flags"]))
    assert result["tracked"]["lag_nats"] == last["tracker/lag_nats"]
    assert abs(saved.log_z - exact) < 5 * saved.log_z_std
    assert result["evidence"]["interval_nats"] == pytest.approx([exact, exact])
    for method in ("tracked", "exact", "ais", "reverse_ais", "evidence"):
        for part in ("train", "valid", "test"):
            expected = mean_log_prob_unnormalised(saved.rbm, patterns[part]) - result[method]["log_z_nats"]
            assert result[method][f"{part}_log_likelihood_nats"] == pytest.approx(expected, rel=1e-6), (method, part)
    for method in ("ais", "reverse_ais"):
        assert result[method]["log_z_nats"] == pytest.approx(exact, abs=0.5)
    assert result["tracking"]["num_exact"] == 2
    assert result["rows"] == {"train": 150, "valid": 20, "test": 30}
    assert (result["updates"], result["step"], saved.step, result["num_temps"]) == (40, 40, 40, 3)
    assert {path.name for path in (folder / "whole" / "plots").iterdir()} == {"log_z.svg", "log_likelihood.svg"}


def test_what_is_printed_is_what_is_stored(folder: Path, whole: Finished) -> None:
    assert whole.code == 0, whole.err
    result = result_of(folder, "whole")
    assert f"\nevidence: {result['evidence']['statement']}\n" in whole.out
    for method in ("tracked", "exact", "ais", "reverse_ais"):
        log_z, *values = [
            f"{result[method][key]:.3f}"
            for key in ("log_z_nats", "valid_log_likelihood_nats", "test_log_likelihood_nats")
        ]
        numbers = rf"{log_z} .*{' +'.join(values)}"
        assert re.search(rf"^{method.replace('_', ' ')} +{numbers}$", whole.out, re.MULTILINE), method
    assert "log-likelihoods: nats per row" in whole.out
    assert "reported: update 40 of 40\n" in whole.out


def test_scalars_are_logged_at_their_steps(folder: Path, whole: Finished) -> None:
    assert whole.code == 0, whole.err
    lines = lines_of(folder, "whole")
    assert [line["step"] for line in lines] == [10, 20, 30, 40]
    for line in lines:
        assert {"tracker/log_z_nats", "tracker/bias_nats", "tracker/nis", "swap/rate_02", "ladder/beta_03"} <= set(line)
        is_evaluated = line["step"] % 20 == 0
        tags = {"valid/log_likelihood_nats", "train/log_likelihood_nats", "ais/log_z_nats", "exact/log_z_nats"}
        assert tags <= set(line) if is_evaluated else not tags & set(line)
    assert any((folder / "whole" / "tensorboard").iterdir())


def test_the_best_parameters_are_reported_and_not_the_last(folder: Path, stopped: Finished) -> None:
    """An RBM of noise overfits: validation gets worse, and what is reported is from before that."""
    assert stopped.code == 0, stopped.err
    result, saved = result_of(folder, "stopped"), load_rbm(folder / "stopped" / "rbm.npz")
    assert result["stopped_early"]
    assert result["step"] == saved.step < result["updates"] < 4000
    assert f"reported: update {result['step']} of {result['updates']}, stopped early" in stopped.out
    scores = {line["step"]: line for line in lines_of(folder, "stopped") if "valid/log_likelihood_nats" in line}
    reported = scores[result["step"]]
    assert result["tracked"]["log_z_nats"] == pytest.approx(reported["tracker/log_z_nats"])
    valid = mean_log_prob_unnormalised(saved.rbm, np.load(folder / "noise.npz")["valid"])
    assert valid - saved.log_z == pytest.approx(reported["valid/log_likelihood_nats"], rel=1e-6)
    assert result["exact"]["log_z_nats"] == pytest.approx(log_z_exact(saved.rbm))
    assert "ais/ess" in reported  # what is reported was checked, flagged or not
    lower = {}
    for step, line in scores.items():
        mean_log_q = line["valid/log_likelihood_nats"] + line["tracker/log_z_nats"]
        lower[step] = mean_log_q - line["evidence/high_nats"]
        if int(line["tracker/flags"]) != 0:
            assert "ais/ess" in line
    assert lower[result["step"]] == pytest.approx(max(lower.values()))
    assert result["evidence"]["is_trusted"]


@pytest.mark.slow
def test_flagged_estimates_are_replaced_by_ais(folder: Path) -> None:
    """At a learning rate that is far too high the tracked values rise on and on; what is chosen is good in truth."""
    rates = ["--learning_rate=0.3", "--learning_rate_decay=1e4"]
    arguments = [*SMALL, "--num_steps=300", *rates, "--patience=20", "--ais_betas=300", "--hidden=12"]
    done = call(folder, "flagged", *arguments)
    assert done.code == 0, done.err
    result = result_of(folder, "flagged")
    scores = {line["step"]: line for line in lines_of(folder, "flagged") if "valid/log_likelihood_nats" in line}
    tracked = max(scores, key=lambda step: scores[step]["valid/log_likelihood_nats"])
    by_ais = {s: line["valid/ais_log_likelihood_nats"] for s, line in scores.items() if "ais/ess" in line}
    assert len(by_ais) > 5
    assert scores[tracked]["evidence/log_z_nats"] > scores[tracked]["tracker/log_z_nats"] + 0.5  # which is too low
    assert by_ais[result["step"]] > by_ais[tracked] + 0.5
    assert result["exact"]["valid_log_likelihood_nats"] == pytest.approx(by_ais[result["step"]], abs=0.3)


def test_temperatures_are_added_and_restored(folder: Path) -> None:
    arguments = [*TINY, "--learning_rate=0.5", "--num_track_chains=3", "--num_temps=2", "--spawn_up_to=4"]
    assert call(folder, "spawns", *arguments, "--num_steps=200").code == 0
    done = call(folder, "spawns", *arguments, "--num_steps=220", "--resume")
    assert done.code == 0, done.err
    result = result_of(folder, "spawns")
    assert 2 < result["num_temps"] <= 4
    assert "ladder/beta_03" in lines_of(folder, "spawns")[-1]
    assert result["updates"] == 220  # it was resumed with more temperatures than its flags say


def test_images_have_filters_and_samples_with_and_without_tracking(folder: Path) -> None:
    settings = ["--num_steps=10", "--hidden=6", "--gibbs_steps=2", "--bias=learned", "--generator=hash"]
    done = call(folder, "images", *SMALL, *settings, "--notrack", "--eval_rows=100")
    assert done.code == 0, done.err
    plots = {path.name: path.stat().st_size for path in (folder / "images" / "plots").iterdir()}
    assert plots.keys() == {"filters.png", "samples.png", "data.png"}
    assert min(plots.values()) > 200
    result = result_of(folder, "images")
    assert {"tracked", "ais", "reverse_ais"} & set(result) == set()
    assert result["exact"]["log_z_nats"] == pytest.approx(log_z_exact(load_rbm(folder / "images" / "rbm.npz").rbm))


def test_divergence_is_one_clear_error(folder: Path) -> None:
    done = call(folder, "diverged", "--num_steps=20", "--learning_rate=1e38", *TINY)
    assert done.code == 1
    assert re.search(
        r"log Z is not finite after update \d+, though the parameters are: .*; lower learning_rate", done.err
    )
    assert done.err.count("\n") == 1


def test_rare_bits_end_with_a_log_z(folder: Path) -> None:
    """Ordinary flags and alarms: at some update all particles of two temperatures have one weight."""
    rows = np.random.default_rng(1).random((400, 10)) < 0.005
    np.savez(folder / "rare.npz", train=rows[:300], valid=rows[300:350], test=rows[350:])
    arguments = ["--data=rare.npz", "--hidden=8", *SMALL, "--num_steps=60", "--learning_rate=0.05"]
    done = call(folder, "rare", *arguments, "--patience=5")
    assert done.code == 0, done.err
    result = result_of(folder, "rare")
    assert abs(result["tracked"]["log_z_nats"] - result["exact"]["log_z_nats"]) < 0.05
    assert "not_finite" not in result["tracked"]["flags"]


@pytest.mark.parametrize(("arguments", "message"), ERRORS, ids=lambda value: value if isinstance(value, str) else "")
def test_bad_input_is_one_clear_error_and_leaves_no_folder(folder: Path, arguments: list[str], message: str) -> None:
    done = call(folder, "error", *arguments)
    assert done.code == 2
    assert re.search(message, done.err), done.err
    assert "Traceback" not in done.err
    assert not (folder / "error").exists()


def test_flags_are_written_as_they_are_read() -> None:
    flags = parse(Flags, ["--run_dir=x", "--num_track_chains=2", "--spawn_up_to=9", "--notrack"])
    again = parse(Flags, ["--run_dir=x", *text(flags).split()])
    assert text(again) == text(flags)
    default = SMLConfig(schedule="linear", decay=DecayConfig(decay_steps=20_000))
    assert again.sml == dataclasses.replace(default, gradient_chains=20, adaptive=True, track=False)
    assert parse(Flags, ["--run_dir=x"]).sml == default
    assert parse(Flags, ["--run_dir=x", *PAPER, "--learning_rate=0.01"]).sml == SMLConfig.paper(decay_steps=20_000)
    falling = ["--schedule=linear", "--num_steps=500", "--target_chains=7", "--l2=0.1", "--average=0.9", "--method=pcd"]
    config = parse(Flags, ["--run_dir=x", *falling]).sml
    groups: dict[str, Any] = {"decay": DecayConfig(decay_steps=500), "penalties": PenaltyConfig(l2=0.1)}
    assert config == SMLConfig(schedule="linear", method="pcd", target_chains=7, average=0.9, **groups)


@pytest.mark.slow
@pytest.mark.ci
def test_every_part_of_training_in_one_run(tmp_path: Path) -> None:
    """Averaged parameters are reported, with a log Z that holds, and a bracket along the parameters of the way."""
    folder = tmp_path / "run"
    options = "--dataset=digits --hidden=8 --num_temps=3 --num_chains=6 --target_chains=10 --schedule=cosine --nojit"
    options += " --centred --l2=1e-3 --average=0.9 --momentum=0.3 --sparsity_target=0.2 --modes=3 --learning_rate=0.05"
    options += " --trajectory --trajectory_steps=60 --final_ais_betas=100 --num_steps=60 --eval_every=30"
    done = called(main, "track_rbm.py", tmp_path, ["--run_dir=run", *options.split()])
    assert done.code == 0, done.err
    result = result_of(tmp_path, "run")
    exact = result["exact"]["log_z_nats"]
    assert abs(result["tracked"]["log_z_nats"] - exact) < 5 * result["tracked"]["std_nats"] + 0.05
    for name in ("ais", "reverse_ais", "trajectory_ais", "reverse_trajectory_ais"):
        low, high = result[name]["three_sigma_nats"]
        assert low - 0.1 < exact < high + 0.1, name
    assert sorted(path.name for path in (folder / "trajectory").iterdir())[0] == "step_000000010.npz"
    assert load_rbm(folder / "rbm.npz").log_z == result["tracked"]["log_z_nats"]

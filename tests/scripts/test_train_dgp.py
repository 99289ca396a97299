"""`scripts/train_dgp.py` on tiny data: what it prints and leaves behind, its numbers by oracles, and its errors."""

import json
import re
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logsumexp

from gpflow_deep import DeepGP, DeepSigmaPointProcess, Predictor, SampledTrainer, float_type
from gpflow_deep.model.deep_gp import NUM_PREDICT_SAMPLES
from gpflow_deep.train.choosing import selection
from gpflow_deep_runs.cli.flags import named_flags, parse, text
from gpflow_deep_runs.data.rows import Part, Rows
from gpflow_deep_runs.data.views import Source, TableSpec, load
from scripts.train_dgp import Flags, main
from tests.scripts.running import Finished, called, lines_of, result_of

SMALL = [
    "--num_inducing=5",
    "--num_predict_samples=4",
    "--batch_size=20",
    "--noprogress",
    "--eval_every=2",
    "--log_every=1",
]
HOUSES = ["--data=houses.csv", "--target=price", "--num_layers=2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of 80 rows."""
    folder = tmp_path_factory.mktemp("train")
    rng = np.random.default_rng(0)
    size = rng.uniform(20, 90, 80)
    colour = rng.choice(["red", "blue"], 80)
    houses = pd.DataFrame({"size": size, "colour": colour, "price": 1e5 + 900 * size + 5e3 * rng.normal(size=80)})
    houses.to_csv(folder / "houses.csv", index=False)
    houses.assign(price=houses["price"] / 1000).to_csv(folder / "thousands.csv", index=False)
    houses.assign(size=np.where(np.arange(80) == 7, np.nan, size)).to_csv(folder / "missing.csv", index=False)
    x = rng.normal(size=(80, 2))
    sick = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "sick": np.where(x[:, 0] > 0.3, "yes", "no")})
    sick.to_csv(folder / "sick.csv", index=False)
    kinds = np.array(["ape", "bee", "cow"])[np.digitize(x[:, 0], [-0.5, 0.5])]
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "kind": kinds}).to_csv(folder / "kinds.csv", index=False)
    np.savez(folder / "line.npz", X=x[:, :1], y=np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=80))
    np.savez(folder / "counts.npz", X=x[:, :1], y=rng.poisson(np.exp(x[:, 0])).astype(float))
    return folder


def call(folder: Path, name: str, *arguments: str) -> Finished:
    """The script, called in this process and in `folder`, with --run_dir=`name`."""
    return called(main, "train_dgp.py", folder, [f"--run_dir={name}", *arguments])


ERRORS_OF = ("log_likelihood_nats", "rmse", "crps", "coverage_50", "coverage_90", "coverage_95")
JUDGED = {*ERRORS_OF, *(f"{name}_se" for name in ERRORS_OF), "pit_distance"}
JUDGED_LABELS = {"log_likelihood_nats", "log_likelihood_nats_se", "accuracy", "accuracy_se"}
JUDGED_LABELS |= {"calibration_error", "calibration_error_se"}
REGRESSION = [*HOUSES, "--num_steps=4", "--compare=gp,linear", "--eval_rows=5", *SMALL]


@pytest.fixture(scope="module")
def regression(folder: Path) -> Finished:
    return call(folder, "regression", *REGRESSION)


def test_regression(folder: Path, regression: Finished) -> None:
    assert (regression.code, regression.err) == (0, "")
    for line in (
        r"^linear  ",
        r"^GP \(1 layer\)  ",
        r"^deep GP \(2 layers\)  ",
        r"nats a row +RMSE +CRPS +50% +90% +seconds",
    ):
        assert re.search(line, regression.out, re.MULTILINE), line
    assert "log-likelihood: nats per row; it and RMSE in the units of 'price'" in regression.out
    result = result_of(folder, "regression")
    assert (result["dataset"], result["task"], result["target"], result["likelihood"]) == (
        "houses",
        "regression",
        "price",
        "gaussian",
    )
    assert list(result["models"]) == ["linear", "gp", "dgp"]
    for scores in result["models"].values():
        assert set(scores["test"]) == set(scores["valid"]) == JUDGED
        assert 0 <= scores["test"]["coverage_50"] <= scores["test"]["coverage_95"] <= 1
    # Eight rows tell of the deep GP after four steps that it is worse than least squares, and nothing of the GP.
    assert [scores.get("warning") is None for scores in result["models"].values()] == [True, True, False]
    for line in (
        r"^linear .* ± ",
        r"^deep GP \(2 layers\): [\d.]+ ± [\d.]+ nats a row (better|worse) than .*settled.* after 4 steps\.$",
        r"^deep GP \(2 layers\): worse than least squares: .* nats",
    ):
        assert re.search(line, regression.out, re.MULTILINE), line
    assert [result["models"][name]["num_layers"] for name in ("gp", "dgp")] == [1, 2]
    assert (result["models"]["dgp"]["num_steps"], result["models"]["dgp"]["is_finished"]) == (4, True)
    assert result["rows"] == {"train": 65, "valid": 7, "test": 8}
    files = {str(path.relative_to(folder / "regression")) for path in (folder / "regression").rglob("*")}
    for part in ("", "gp/"):
        assert {f"{part}{name}" for name in ("model.npz", "inputs.json", "result.json", "scalars.jsonl")} <= files
        plots = ("course_of_training", "predicted_and_true", "calibration", "residuals")
        assert {f"{part}plots/{name}.svg" for name in plots} <= files
    own = result_of(folder, "regression/gp")
    assert own["models"] == {"gp": result["models"]["gp"]}
    assert "--num_layers=1" in own["flags"]


def test_what_is_logged(folder: Path, regression: Finished) -> None:
    """The bound at each step; scores of the rows that are looked at, and the layers, at every second."""
    assert regression.code == 0
    lines = lines_of(folder, "regression")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    tags = set().union(*lines)
    assert {"train/elbo_nats", "test/rmse", "valid/log_likelihood_nats", "layer_1/kl_nats", "layer_2/jitter"} <= tags
    assert {
        "layer_1/lengthscale_size",
        "layer_1/noise_variance",
        "layer_1/condition_Kuu",
        "likelihood/variance",
    } <= tags
    assert ["test/rmse" in line for line in lines] == [False, True, False, True]
    all_rows = result_of(folder, "regression")["models"]["dgp"]["test"]["rmse"]
    assert lines[-1]["test/rmse"] != pytest.approx(all_rows, rel=1e-3)  # of 5 rows of 8, and no other scores


def _scores(predictor: Predictor, train: Part, part: Part) -> dict[str, float]:
    """Log density of the mixture and RMSE in NumPy, from the Gaussians of the model and scales of the raw rows."""
    x = (part.X - train.X.mean(axis=0)) / train.X.std(axis=0)
    means, variances = (np.asarray(array) for array in predictor.model.predict_components(x))
    scale, noise = train.Y.std(axis=0), float(predictor.model.likelihood.variance.numpy())
    means, deviations = means * scale + train.Y.mean(axis=0), np.sqrt(variances + noise) * scale
    log_density = logsumexp(stats.norm.logpdf(part.Y, means, deviations).sum(axis=2), axis=0) - np.log(len(means))
    error = part.Y - means.mean(axis=0)
    return {"log_likelihood_nats": float(log_density.mean()), "rmse": float(np.sqrt(np.mean(error**2)))}


def _houses(folder: Path) -> Rows:
    source, table = Source(data=str(folder / "houses.csv")), TableSpec(target=("price",))
    return load(source, "supervised", table=table, split=0, valid_fraction=0.1, seed=0)


@pytest.mark.parametrize(("model", "run"), [("dgp", "regression"), ("gp", "regression/gp")])
def test_numbers_are_of_the_last_parameters_and_of_the_rows_they_name(
    model: str, run: str, folder: Path, regression: Finished
) -> None:
    """Against NumPy in the units of the data, by the stored model: all test rows, not the --eval_rows of a part."""
    assert regression.code == 0
    data, predictor = _houses(folder), Predictor.load(folder / run)
    reported = result_of(folder, "regression")["models"][model]
    expected = _scores(predictor, data.train, data.test)
    assert {key: reported["test"][key] for key in expected} == pytest.approx(expected, rel=1e-6)
    assert reported["test"]["rmse"] != pytest.approx(reported["valid"]["rmse"], rel=1e-3)
    assert 1_000 < reported["test"]["rmse"] < 100_000  # prices are about 150,000


def test_linear_model_is_least_squares(folder: Path, regression: Finished) -> None:
    assert regression.code == 0
    data = _houses(folder)
    weights, *_ = np.linalg.lstsq(np.hstack([data.train.X, np.ones([65, 1])]), data.train.Y, rcond=None)
    std = np.std(data.train.Y - np.hstack([data.train.X, np.ones([65, 1])]) @ weights)
    mean = np.hstack([data.test.X, np.ones([8, 1])]) @ weights
    expected = {
        "log_likelihood_nats": stats.norm.logpdf(data.test.Y, mean, std).mean(),
        "rmse": np.sqrt(np.mean((data.test.Y - mean) ** 2)),
    }
    found = result_of(folder, "regression")["models"]["linear"]["test"]
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-8)


def test_another_unit_of_the_target_shifts_the_log_likelihood(folder: Path, regression: Finished) -> None:
    """Prices in thousands: the RMSE is a thousandth, and log densities are larger by log 1000, of each model."""
    done = call(folder, "thousands", "--data=thousands.csv", *REGRESSION[1:])
    assert (done.code, done.err) == (0, "")
    one, other = (result_of(folder, name)["models"] for name in ("regression", "thousands"))
    for name in ("linear", "gp", "dgp"):
        for part in ("valid", "test"):
            a, b = one[name][part], other[name][part]
            assert a["rmse"] == pytest.approx(1000 * b["rmse"], rel=1e-6)
            shift = b["log_likelihood_nats"] - a["log_likelihood_nats"]
            assert shift == pytest.approx(np.log(1000.0), abs=1e-6)


OTHERS: dict[str, tuple[list[str], set[str]]] = {
    "binary": (
        ["--data=sick.csv", "--target=sick", "--num_steps=2", "--num_layers=1", "--likelihood=softmax", *SMALL],
        JUDGED_LABELS | {"auc"},
    ),
    "multiclass": (
        ["--data=kinds.csv", "--target=kind", "--num_steps=2", "--preset=modern", "--natgrad", "--compare=", *SMALL],
        JUDGED_LABELS,
    ),
    "line": (
        [
            "--data=line.npz",
            "--num_steps=2",
            "--dtype=float32",
            "--natgrad",
            "--compare=",
            "--valid_fraction=0",
            *SMALL,
        ],
        JUDGED,
    ),
    "limited": (
        ["--data=counts.npz", "--likelihood=poisson", "--num_layers=1", "--max_seconds=0", "--max_rows=30", *SMALL],
        JUDGED,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_tasks(name: str, folder: Path) -> None:
    arguments, scores = OTHERS[name]
    done = call(folder, name, *arguments)
    assert (done.code, done.err) == (0, "")
    (model,) = result_of(folder, name)["models"].values()
    assert set(model["test"]) == scores
    assert all(np.isfinite(value) for value in model["test"].values())
    assert ("valid" in model) == (name != "line")
    plots = {path.stem for path in (folder / name / "plots").iterdir()}
    if "accuracy" in scores:
        assert plots >= {"course_of_training", "calibration"}
    else:
        assert plots >= {"course_of_training", "calibration", "predicted_and_true", "residuals", "fit"}
    if name == "line":
        assert Predictor.stored_float(folder / name) == "float32"
        with float_type("float32"):
            assert not Predictor.load(folder / name).model.layers[-1].q_mu.trainable
    if name == "limited":
        assert (model["num_steps"], model["is_finished"]) == (1, False)
        assert result_of(folder, name)["rows"]["train"] == 30
        assert len(list((folder / name / "checkpoints").iterdir())) == 1
        assert ["test/rmse" in line for line in lines_of(folder, name)] == [False, True]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("is_deep", [False, True])
def test_the_rows_choose_once(is_deep: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no flag gives is chosen when the run begins, told, kept, and taken up as it is by --resume."""
    arguments = ["--data=line.npz", "--compare=gp" if is_deep else "--compare=", *SMALL[1:]]
    name = "chosen_deep" if is_deep else "chosen"
    with monkeypatch.context() as patch:
        patch.setattr(selection, "is_long_tailed", lambda residuals: is_deep)
        patch.setattr(selection, "FEW_NOISY_ROWS", 0)
        patch.setattr(selection, "MAX_IMPUTED", 0)  # two layers are trained by steps
        patch.setattr(selection, "paired_gain", lambda scores, others: (1.0, 0.1))
        patch.setattr("scripts.train_dgp.begin_chosen", partial(selection.begin_chosen, max_iter=4))
        done = call(folder, name, "--num_steps=4", *arguments)
    assert done.code == 0, done.err
    choice = json.loads((folder / name / "choice/choice.json").read_text())
    chosen = choice["choice"]["chosen"]
    assert chosen["num_layers"] == 1 + is_deep
    assert "nats per row: of left-out rows" in done.out
    result = result_of(folder, name)["models"]
    assert list(result) == (["gp", "dgp"] if is_deep else ["gp"])
    assert result["gp"]["trained_by"] == "L-BFGS"
    first, begun = (Predictor.load(folder / name / part).model for part in ("", "choice/model"))
    assert len(first.layers) == len(begun.layers) == chosen["num_layers"]
    is_same = np.array_equal(first.layers[-1].q_mu, begun.layers[-1].q_mu)
    assert is_same != is_deep  # a deep GP is trained on from there

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("chosen anew")

    monkeypatch.setattr("scripts.train_dgp.begin_chosen", refuse)
    more = call(folder, name, "--resume", "--num_steps=6", *arguments)
    assert more.code == 0, more.err
    assert "nats per row: of left-out rows" in more.out
    assert [line["step"] for line in lines_of(folder, name)] == (list(range(1, 7)) if is_deep else [1])


@pytest.mark.slow
@pytest.mark.ci
def test_sigma_points_are_of_the_deep_gp_alone(folder: Path) -> None:
    """The weight of the KL is chosen at the beginning, and kept."""
    points = ["--posterior=sigma_points", "--sigma_points=3"]
    done = call(folder, "points", *HOUSES, "--num_steps=2", *points, *SMALL)
    assert done.code == 0, done.err
    deep, single = (Predictor.load(folder / name).model for name in ("points", "points/gp"))
    assert (type(deep), type(single)) == (DeepSigmaPointProcess, DeepGP)
    assert deep.component_weights().shape == [3]
    chosen, tried = json.loads((folder / "points/kl_weight.json").read_text()), "kl_weight=5:"
    assert deep.kl_weight == chosen["kl_weight"]
    assert tried in done.out
    (folder / "points/kl_weight.json").write_text(json.dumps({**chosen, "kl_weight": 0.5, "note": None}))
    more = call(folder, "points", "--resume", *HOUSES, "--num_steps=3", *points, *SMALL)
    assert more.code == 0, more.err
    assert Predictor.load(folder / "points").model.kl_weight == 0.5
    assert tried not in more.out


@pytest.mark.slow
@pytest.mark.ci
def test_samples_of_the_posterior(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain follows training; stopped within the chain and resumed it is bit for bit the same."""
    chain = ["--chain_burn_in=2", "--chain_sampling_steps=8", "--chain_num_kept=4", "--chain_temperature=1"]
    arguments = [*HOUSES, "--num_steps=4", "--compare=", "--posterior=sghmc", *chain, *SMALL]
    assert call(folder, "samples", *arguments).code == 0
    model = result_of(folder, "samples")["models"]["dgp"]
    assert (model["num_steps"], model["is_finished"], model["chain"]["num_steps"]) == (14, True, 10)
    assert set(model["chain"]["trust"]) == {"layer 1 of 2", "layer 2 of 2", "functions"}
    advance = SampledTrainer.advance

    def stopping(trainer: Any, batch_at: Any, first: int, *rest: Any) -> Any:
        if first == 9:
            signal.raise_signal(signal.SIGINT)
        return advance(trainer, batch_at, first, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(SampledTrainer, "advance", stopping)
        assert "stopped by SIGINT after step 10" in call(folder, "stopped_samples", *arguments).err
    assert call(folder, "stopped_samples", "--resume", *arguments).code == 0
    whole, parts = (Predictor.load(folder / name).model for name in ("samples", "stopped_samples"))
    assert whole.is_sampled
    for found, right in zip(parts.variables, whole.variables, strict=True):
        np.testing.assert_array_equal(found, right)


def test_divergence_is_one_clear_line(folder: Path) -> None:
    done = call(
        folder, "diverged", "--data=line.npz", "--num_layers=2", "--num_steps=50", "--learning_rate=1e200", *SMALL
    )
    assert done.code == 1
    assert re.fullmatch(r"train_dgp\.py: error: .*step.*Lower learning_rate.*\n", done.err), done.err
    assert "{{node" not in done.err


LINE = ["--data=line.npz"]
ERRORS: list[tuple[list[str], str]] = [
    (["--data=houses.csv", "--target=cost"], "--target must name columns of houses.csv, got 'cost'"),
    (["--data=houses.csv"], "--target must be a column"),
    (["--data=missing.csv", "--target=price", "--missing=error"], "missing values in 'size' \\(1\\)"),
    (["--data=nothing.csv", "--target=price"], "there is none at nothing.csv"),
    (["--dataset=no_such_data"], "--dataset must be one of .*got 'no_such_data'"),
    (["--dataset=boston"], "data set 'boston' needs .*--data_dir"),
    (["--dataset=diabetes", "--target=price"], "--target describes your own table; give it with --data"),
    (["--dataset=diabetes", "--likelihood=bernoulli"], "likelihood must be one of gaussian, studentt, poisson"),
    ([*LINE, "--likelihood=poisson"], "likelihood=poisson needs targets that are counts"),
    (["--dataset=wine", "--compare=linear"], "compare=linear needs a regression"),
    ([*LINE, "--kernel_variance=0"], "kernel_variance must be a finite number above 0, got 0.0"),
    ([*LINE, "--natgrad_gamma=0.1"], "natgrad_gamma=0.1 has no effect"),
    ([*LINE, "--max_rows=1"], "--max_rows must be at least 2, got 1"),
    ([*LINE, "--split=-1"], "--split must not be negative, got -1"),
    ([*LINE, "--test_fraction=0.2"], "--test_fraction describes a stream; give --stream too"),
    (["--dataset=diabetes", "--resume"], "holds no run to resume"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)), ids=[message for _, message in ERRORS])
def test_errors_are_one_line_before_anything_is_written(number: int, folder: Path) -> None:
    arguments, message = ERRORS[number]
    code, _, err = call(folder, "error", *arguments)
    assert code == 2
    assert re.fullmatch(rf"train_dgp\.py: error: .*{message}.*\n", err), err
    assert not (folder / "error").exists()


def test_run_is_not_overwritten(folder: Path, regression: Finished) -> None:
    assert regression.code == 0
    again = call(folder, "regression", *REGRESSION)
    other = call(folder, "regression", *REGRESSION, "--resume", "--learning_rate=0.02")
    assert again.code == other.code == 2
    assert "already holds a run; give a new --run_dir, or --resume" in again.err
    assert "(not set) is now --learning_rate=0.02" in other.err


def test_resuming_a_finished_run_changes_nothing(folder: Path, regression: Finished) -> None:
    """The same table again, and no step twice in the logs."""
    before = result_of(folder, "regression")["models"]
    done = call(folder, "regression", *REGRESSION, "--resume")
    assert done.code == 0
    after = result_of(folder, "regression")["models"]
    for name in ("linear", "gp", "dgp"):
        assert after[name]["test"] == before[name]["test"]
    assert [line["step"] for line in lines_of(folder, "regression")] == [1, 2, 3, 4]


def test_flags_are_those_of_the_stored_file(folder: Path, regression: Finished) -> None:
    """So --flagfile=RUN/flags.txt repeats a run, and every flag says what it is."""
    assert regression.code == 0
    flags = parse(Flags, [f"--flagfile={folder / 'regression' / 'flags.txt'}", "--run_dir=other"])
    assert text(flags) == (folder / "regression" / "flags.txt").read_text()
    assert flags.compare == ("gp", "linear")
    assert (
        replace(flags.config, num_inducing=100, num_predict_samples=NUM_PREDICT_SAMPLES)
        == parse(Flags, ["--run_dir=x"]).config
    )
    assert flags.free == ["kernel", "likelihood"]
    assert parse(Flags, ["--run_dir=x"]).free == ["num_layers", "num_inducing", "kernel", "likelihood", "posterior"]
    assert [flag.name for flag in named_flags(Flags) if not flag.help] == []

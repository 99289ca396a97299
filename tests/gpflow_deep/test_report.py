"""`use.report`: which rows a score is of, the linear model against plain least squares, arrays and cells."""

import re
from types import SimpleNamespace
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gpflow_deep import DeepGPRegressor, LatentConfig, ModelConfig, Predictor, Scale, Units, diagnose, pages, report
from gpflow_deep.judge import evaluation
from gpflow_deep_base.text import aligned, within
from tests.gpflow_deep import oracles
from tests.gpflow_deep.builders import make_data, make_model
from tests.terminal import check_width


def _trained(rng: np.random.Generator, widths: tuple[int, ...] = (2, 1)) -> tuple[Predictor, dict[str, Any]]:
    """A predictor and rows of two parts in the units of the data; one layer needs no draws."""
    units = Units(Scale(np.full(2, 3.0), np.full(2, 1.5)), Scale(np.full(1, -40.0), np.full(1, 7.0)))
    parts = {}
    for name, num_rows in (("valid", 7), ("test", 12)):
        x, y = make_data(rng, num_rows)
        parts[name] = units.x.inverse_transform(x), units.y.inverse_transform(y)
    return Predictor(make_model(rng, widths), units), parts


def _oracle(predictor: Predictor, X: np.ndarray, Y: np.ndarray) -> dict[str, float]:
    """Mean log density and RMSE of a single-layer GP, in NumPy and in the units of the data."""
    scale = predictor.units.y
    mean, var = oracles.Layer(predictor.model.layers[0]).marginals(predictor.units.x.transform(X))
    mean, std = mean * scale.scale + scale.mean, np.sqrt(var + 0.1) * scale.scale
    log_density = stats.norm.logpdf(Y, mean, std).mean()
    return {"log_likelihood_nats": log_density, "rmse": np.sqrt(np.mean((Y - mean) ** 2))}


def test_scores_are_those_of_their_part(rng: np.random.Generator) -> None:
    predictor, parts = _trained(rng)
    found = report.scalars(predictor, parts)
    for name, part in parts.items():
        for key, value in _oracle(predictor, *part).items():
            assert found[f"{name}/{key}"] == pytest.approx(value, rel=1e-9)
    assert found["test/rmse"] != pytest.approx(found["valid/rmse"], rel=1e-3)
    assert found.items() >= report.layer_scalars(predictor.model).items()


def test_final_scores_are_of_all_test_rows_and_of_those_that_were_watched(rng: np.random.Generator) -> None:
    predictor, parts = _trained(rng)
    watch = report.Watch(predictor, parts, eval_rows=7)
    found, watched = watch.final(), watch.rows
    assert len(watched["test"]) == 7
    assert list(found.scores) == ["valid", "test"]
    for name, (X, Y) in parts.items():
        some = X[watched[name]], Y[watched[name]]
        scored = (X, Y) if name == "test" else some
        expected = _oracle(predictor, *scored)
        assert {key: found.scores[name][key] for key in expected} == pytest.approx(expected, rel=1e-9)
        judged = report.evaluate(predictor, scored)
        assert judged.log_density.value == pytest.approx(expected["log_likelihood_nats"], rel=1e-9)
        assert found.scores[name]["log_likelihood_nats_se"] == judged.log_density.error
        assert found.scores[name]["coverage_90"] == found.judged[name].coverage[0.9].value  # type: ignore[index]
        seen = _oracle(predictor, *some)
        assert {key: found.scalars[f"{name}/{key}"] for key in seen} == pytest.approx(seen, rel=1e-9)
        np.testing.assert_allclose(found.predicted[name].mean, predictor.evaluate(*scored).mean, rtol=1e-12)
    assert found.scalars["test/rmse"] != pytest.approx(found.scores["test"]["rmse"], rel=1e-3)
    assert found.scalars.items() >= report.layer_scalars(predictor.model).items()
    assert set(found.scalars) == set(watch.during())


def test_rows_that_are_not_tested_are_predicted_only_as_far_as_they_are_watched(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor, parts = _trained(rng)
    watch = report.Watch(predictor, {"train": parts["test"], **parts}, eval_rows=3)
    pushed = list[int]()
    forecast = predictor.forecast

    def counted(X: np.ndarray, Y: np.ndarray) -> Any:
        pushed.append(len(X))
        return forecast(X, Y)

    monkeypatch.setattr(predictor, "forecast", counted)
    watch.final()
    assert pushed == [3, 3, len(parts["test"][0])]


def test_a_summary_says_what_is_wrong_with_the_intervals_and_text_ends_with_it(rng: np.random.Generator) -> None:
    predictor, parts = _trained(rng)
    X = np.tile(parts["test"][0][:1], (50, 1))
    (mean,) = set(np.round(predictor.predict(X).mean[:, 0], 9))
    final = report.Watch(predictor, {"test": (X, np.full((50, 1), mean))}).final()
    trainer = SimpleNamespace(model=predictor.model, is_settled=False, seconds=1.0)
    found = report.summary(trainer, final)  # type: ignore[arg-type]
    assert found["calibration"].startswith("GP (1 layer): central 50% intervals hold 100% of the rows: the noise has")
    *_, last = report.text({"dgp": found}, {"dgp": final.judged["test"]}, "regression", ["y"])
    assert last == found["calibration"]
    right = {"test": final.judged["test"]._replace(coverage={0.5: evaluation.Score(0.5, 0.07)})}
    assert "calibration" not in report.summary(trainer, final._replace(judged=right))  # type: ignore[arg-type]


def test_rows_to_look_at_are_drawn_once_for_each_part(rng: np.random.Generator) -> None:
    predictor, parts = _trained(rng)
    seeds = {"valid": 3, "test": 4}
    watch = report.Watch(predictor, parts, eval_rows=7, rng=lambda name: np.random.default_rng(seeds[name]))
    np.testing.assert_array_equal(watch.rows["valid"], np.arange(7))
    expected = np.sort(np.random.default_rng(4).choice(12, 7, replace=False))
    np.testing.assert_array_equal(watch.rows["test"], expected)
    some = _oracle(predictor, parts["test"][0][expected], parts["test"][1][expected])
    found = watch.during()
    assert {key: found[f"test/{key}"] for key in some} == pytest.approx(some, rel=1e-9)
    with pytest.raises(ValueError, match="eval_rows must be at least 1, got 0"):
        report.Watch(predictor, parts, eval_rows=0)


def test_layer_scalars_name_what_diagnose_finds(rng: np.random.Generator) -> None:
    model = make_model(rng, (3, 2, 1), layer_options={"noise_variance": 0.02})
    scalars, layers = report.layer_scalars(model), diagnose(model)
    assert set(scalars) == {
        *(f"layer_{i}/{name}" for i in (1, 2) for name in ("kl_nats", "condition_Kuu", "jitter", "noise_variance")),
        *(f"layer_{i}/kernel_variance" for i in (1, 2)),
        *(f"layer_1/lengthscale_{d}" for d in range(3)),
        *(f"layer_2/lengthscale_{d}" for d in range(2)),
        "likelihood/variance",
    }
    assert scalars["layer_1/kl_nats"] == pytest.approx(oracles.Layer(model.layers[0]).prior_kl(), rel=1e-9)
    assert scalars["layer_2/condition_Kuu"] == layers[1].condition_number
    assert scalars["layer_2/noise_variance"] == pytest.approx(0.02)
    np.testing.assert_allclose(scalars["layer_1/lengthscale_2"], model.layers[0].kernel.lengthscales[2])
    named = report.layer_scalars(model, ["a", "b c/d", "e"])
    assert named["layer_1/lengthscale_b_c_d"] == scalars["layer_1/lengthscale_1"]
    assert set(report.layer_scalars(model, ["a/b", "a b", "e"])) >= {
        "layer_1/lengthscale_0_a_b",
        "layer_2/lengthscale_0",
    }
    np.testing.assert_allclose(scalars["layer_2/kernel_variance"], model.layers[1].kernel.variance)
    assert scalars["likelihood/variance"] == pytest.approx(0.1)


def test_many_lengthscales_are_summarised(rng: np.random.Generator) -> None:
    model = make_model(rng, (11, 1))
    lengthscales = model.layers[0].kernel.lengthscales.numpy()
    found = {key: value for key, value in report.layer_scalars(model).items() if "lengthscale" in key}
    assert found == {
        "layer_1/lengthscale_min": lengthscales.min(),
        "layer_1/lengthscale_mean": lengthscales.mean(),
        "layer_1/lengthscale_max": lengthscales.max(),
    }


def test_histograms_are_those_of_the_posterior(rng: np.random.Generator) -> None:
    model = make_model(rng, (2, 3, 1))
    shown = report.histograms(model)
    assert list(shown) == [f"layer_{i}/{name}" for i in (1, 2) for name in ("q_mu", "q_sqrt_diagonal", "lengthscales")]
    np.testing.assert_array_equal(shown["layer_1/q_mu"], model.layers[0].q_mu)
    q_sqrt = model.layers[0].q_sqrt.numpy()
    np.testing.assert_array_equal(shown["layer_1/q_sqrt_diagonal"], [np.diag(factor) for factor in q_sqrt])
    np.testing.assert_array_equal(shown["layer_2/lengthscales"], model.layers[1].kernel.lengthscales)
    diagonal = make_model(rng, (2, 1), layer_options={"q_diag": True, "kernel": gpflow.kernels.Linear()})
    shown = report.histograms(diagonal)
    assert list(shown) == ["layer_1/q_mu", "layer_1/q_sqrt_diagonal"]
    np.testing.assert_array_equal(shown["layer_1/q_sqrt_diagonal"], diagonal.layers[0].q_sqrt)


def test_number_of_parameters(rng: np.random.Generator) -> None:
    """6 inducing inputs of 2 columns, means, factors, 2 lengthscales and a variance; the likelihood's variance."""
    assert report.num_parameters(make_model(rng, (2, 1))) == 12 + 6 + 36 + 2 + 1 + 1


def _line(rng: np.random.Generator, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(20, 90, size=(num_rows, 2))
    Y = 1e5 + X @ np.array([[900.0, 1.0], [-30.0, 2.0]]) + rng.normal(size=(num_rows, 2)) * [5000.0, 3.0]
    return X, Y


def test_linear_baseline_is_least_squares_in_the_units_of_the_data(rng: np.random.Generator) -> None:
    """Standardisation changes neither the fit nor, once its volume is taken off, the density."""
    train, parts = _line(rng, 60), {"valid": _line(rng, 7), "test": _line(rng, 9)}
    found, judged = report.linear_baseline(train, parts, "gaussian")
    assert found["num_parameters"] == 2 * 3 + 2
    assert 0 < found["train_seconds"] < 60
    ones = np.ones([60, 1])
    weights, *_ = np.linalg.lstsq(np.hstack([train[0], ones]), train[1], rcond=None)
    std = np.sqrt(np.mean((train[1] - np.hstack([train[0], ones]) @ weights) ** 2, axis=0))
    for name, (X, Y) in parts.items():
        mean = np.hstack([X, np.ones([len(X), 1])]) @ weights
        expected = {
            "log_likelihood_nats": stats.norm.logpdf(Y, mean, std).sum(axis=1).mean(),
            "rmse": np.sqrt(np.mean((Y - mean) ** 2)),
        }
        assert {key: found[name][key] for key in expected} == pytest.approx(expected, rel=1e-8)
        assert judged[name].rmse == (found[name]["rmse"], found[name]["rmse_se"])


def test_linear_baseline_refuses_what_has_no_density(rng: np.random.Generator) -> None:
    X, Y = _line(rng, 20)
    for likelihood in ("poisson", "bernoulli"):
        with pytest.raises(ValueError, match="compare=linear needs a regression with real targets"):
            report.linear_baseline((X, Y), {}, likelihood)
    exact = X @ np.array([[1.0], [2.0]])
    with pytest.raises(ValueError, match="compare=linear: least squares fits the training rows exactly"):
        report.linear_baseline((X, exact), {}, "gaussian")


def test_notes(rng: np.random.Generator) -> None:
    units = Units.fit(np.stack([np.ones(9), np.arange(9.0)], axis=1), np.arange(9.0)[:, None], "gaussian")
    assert report.notes(ModelConfig(num_inducing=10), units, ["a", "b"], 9) == [
        "these inputs do not vary in the training part and have no effect: a.",
        "num_inducing=10 is more than the 9 training rows; fewer would do.",
    ]
    assert report.notes(ModelConfig(num_inducing=9), Units.fit(*_line(rng, 9), "gaussian"), ["a", "b"], 9) == []


def test_caption() -> None:
    assert report.caption("binary", ["sick"]) == "log-likelihood: nats per row"
    expected = "log-likelihood: nats per row; it and RMSE in the units of 'a, b'"
    assert report.caption("regression", ["a", "b"]) == expected


def test_table_of_models() -> None:
    scores = {"log_likelihood_nats": -1.25, "rmse": 3.0}
    models: dict[str, Any] = {
        "linear": {"valid": scores, "test": {"log_likelihood_nats": -2.0, "rmse": 4.5}, "train_seconds": 0.04},
        "gp": {"num_layers": 1, "num_steps": 10, "train_seconds": 7.26, "valid": scores, "test": scores},
        "dgp": {"num_layers": 3, "num_steps": 20, "train_seconds": 70.0, "valid": scores, "test": scores},
    }
    assert report.table(models) == [
        ["", "valid log-likelihood", "valid RMSE", "test log-likelihood", "test RMSE", "steps", "seconds"],
        ["linear", "-1.2500", "3.0000", "-2.0000", "4.5000", "", "0.0"],
        ["GP (1 layer)", "-1.2500", "3.0000", "-1.2500", "3.0000", "10", "7.3"],
        ["deep GP (3 layers)", "-1.2500", "3.0000", "-1.2500", "3.0000", "20", "70.0"],
    ]
    labels = {"dgp": {"num_layers": 2, "test": {"accuracy": 0.5, "auc": 0.75}, "num_steps": 1, "train_seconds": 1.0}}
    assert report.table(labels) == [
        ["", "test accuracy", "test AUC", "steps", "seconds"],
        ["deep GP (2 layers)", "0.5000", "0.7500", "1", "1.0"],
    ]


def _judged(rng: np.random.Generator, shift: float, num_rows: int = 200) -> evaluation.Evaluation:
    X = np.linspace(-1.0, 1.0, num_rows)[:, None]
    noise = np.random.default_rng(0).normal(size=(num_rows, 1))
    predictor, _ = _trained(rng)
    return report.evaluate(predictor, (np.tile(X, 2), -40.0 + 7.0 * (noise + shift)))


def test_the_end_of_a_run_is_one_table_of_80_columns_and_a_verdict(rng: np.random.Generator) -> None:
    """The difference is paired: of the same rows."""
    judged = {"linear": _judged(np.random.default_rng(1), 0.6), "gp": _judged(np.random.default_rng(1), 0.3)}
    judged["dgp"] = _judged(np.random.default_rng(1), 0.0)
    models: dict[str, Any] = {
        "linear": {"train_seconds": 0.04},
        "gp": {"num_layers": 1, "num_steps": 10, "train_seconds": 7.26},
        "dgp": {"num_layers": 3, "num_steps": 20_000, "train_seconds": 12_345.6, "is_settled": False},
    }
    table, *lines = report.text(models, judged, "regression", ["progression"])
    assert not isinstance(table, str)
    assert [row[0] for row in table] == ["", "linear", "GP (1 layer)", "deep GP (3 layers)"]
    assert len({len(row) for row in table}) == 1
    assert all(len(line) <= 80 for line in aligned(table).splitlines())
    check_width(within("\n".join(map(str, lines))))
    paired = judged["dgp"].log_densities - judged["gp"].log_densities  # type: ignore[operator]
    shown = f"{abs(paired.mean()):.3f} ± {paired.std(ddof=1) / np.sqrt(200):.2g}"
    how = "better" if paired.mean() > 0 else "worse"
    said = f"deep GP (3 layers): {shown} nats a row {how} than GP (1 layer)"
    assert lines[2].startswith(said)  # type: ignore[union-attr]
    assert lines[2].endswith("not settled, more steps may help, after 20000 steps.")  # type: ignore[union-attr]
    settled = report.verdict({"dgp": {**models["dgp"], "is_settled": True}}, {"dgp": judged["dgp"]})
    half = (judged["dgp"].coverage or {})[0.5].value
    assert settled == f"deep GP (3 layers): 50% intervals hold {half:.0%}; settled after 20000 steps."
    assert evaluation.difference(judged["dgp"], _judged(rng, 0.0, 7)) is None


def test_latent_variables_are_no_layer_of_a_title(rng: np.random.Generator) -> None:
    X, Y = make_data(rng, 9)
    config = ModelConfig(num_inducing=4, latents=LatentConfig(1), likelihood="gaussian")
    assert report.depth(config.build(X, Y)) == 2
    assert report.title(report.depth(make_model(rng, (2, 1)))) == "GP (1 layer)"


def test_a_page_shows_the_model_and_escapes_names(rng: np.random.Generator) -> None:
    predictor, parts = _trained(rng)
    X, Y = parts["test"]
    found = report.html(predictor, pd.DataFrame(X, columns=["<a>", "b"]), Y, others={"the same": predictor})
    sections = [
        "Scores",
        "Calibration",
        "The function, by its most relevant inputs",
        "Relevance of inputs",
        "Predicted and true",
        "Residuals",
    ]
    assert re.findall("<h2>(.*?)</h2>", found) == sections
    assert "GP (1 layer): 0.000 ± 0 nats a row worse than the same" in found
    assert "&lt;a&gt;" in found
    assert "<a>" not in found


def test_a_page_refuses_other_models_and_labels_that_the_model_does_not_know(rng: np.random.Generator) -> None:
    """A label between two others would be taken for its neighbour."""
    with pytest.raises(ValueError, match=r"model must be a fitted DeepGPRegressor .*, got DeepGPRegressor"):
        report.html(DeepGPRegressor(), np.zeros((2, 2)), np.zeros(2))
    model = SimpleNamespace(predictor_=_trained(rng)[0], classes_=np.array(["high", "low"]))
    with pytest.raises(ValueError, match=r"y must have the labels \['high', 'low'\], got 'ill', too"):
        report.html(model, np.zeros((2, 2)), ["low", "ill"])


def test_a_page_advises_what_its_training_has(rng: np.random.Generator) -> None:
    X, Y = rng.normal(size=(60, 2)), rng.normal(size=(60, 1))
    units = Units(Scale(np.zeros(2), np.ones(2)), Scale(np.zeros(1), np.full(1, 1e-2)))  # much too sure
    single, deep = Predictor(make_model(rng, (2, 1)), units), Predictor(make_model(rng, (2, 2, 1)), units)
    chosen = SimpleNamespace(predictor_=single, choice_="a table", n_iter_=30, is_settled_=True)
    found = report.html(chosen, X, Y)
    assert "fitted by L-BFGS." in found
    assert "too sure; try more training rows." in found
    stepped = SimpleNamespace(predictor_=deep, choice_=None, n_iter_=500, is_settled_=False)
    found = report.html(stepped, X, Y)
    assert "not settled, more steps may help, after 500 steps" in found
    assert "too sure; try fewer steps, more training rows or fewer layers." in found


def test_dependence_is_the_mean_of_predictions_with_one_input_varied(rng: np.random.Generator) -> None:
    predictor, parts = _trained(rng)
    X, _ = parts["test"]
    found = pages.dependences(predictor, X)
    assert found[0].relevance >= found[1].relevance
    first = min(found, key=lambda each: each.column)
    varied = X.copy()
    varied[:, 0] = first.grid[3]
    predicted = predictor.predict(varied)
    lower, upper, _ = predicted.interval
    for expected, values in ((predicted.mean, first.mean), (lower, first.low), (upper, first.high)):
        assert values is not None
        np.testing.assert_allclose(values[3], expected[:, 0].mean(), rtol=1e-6)

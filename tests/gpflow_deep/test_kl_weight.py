"""The weight of the KL of deep sigma points: which weights are tried, what is chosen, what is kept."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpflow_deep import DeepGPRegressor, DeepSigmaPointProcess, ModelConfig, PointConfig
from gpflow_deep.train.course import KL_WEIGHTS, KLWeight, best_kl_weight, stored_kl_weight
from gpflow_deep.train.fitting import choose_kl_weight, fit

CONFIG = ModelConfig(posterior="sigma_points", points=PointConfig(3), num_inducing=5, preset="modern")
TINY: dict[str, Any] = {"max_iter": 2, "batch_size": 10}


class Table:
    """Log densities of held-out rows by weight; by None that of a bound."""

    def __init__(self, gaussian: float, *by_weight: float) -> None:
        self.values = dict(zip((None, *KL_WEIGHTS), (gaussian, *by_weight), strict=True))
        self.tried: list[float | None] = []

    def __call__(self, config: ModelConfig) -> np.ndarray:
        assert config.posterior == ("gaussian" if config.points.kl_weight is None else "sigma_points")
        self.tried.append(config.points.kl_weight)
        return self.values[config.points.kl_weight] + np.array([-0.1, 0.0, 0.1])


@pytest.mark.parametrize(
    ("values", "chosen", "tried"),
    [
        ((1, 2, 3, 2, 1), 5.0, {1.0, 5.0, 20.0}),  # no need to look further
        ((9, 4, 3, 2, 1), 0.2, {0.2, 1.0, 5.0, 20.0}),  # down to the end
        ((9, 1, 3, 4, 5), 100.0, {1.0, 5.0, 20.0, 100.0}),  # up to the end
    ],
)
def test_the_search_goes_uphill(values: tuple[float, ...], chosen: float, tried: set[float]) -> None:
    table = Table(0.0, *values)
    found = best_kl_weight(CONFIG, table)
    assert (found.kl_weight, found.gaussian, found.note) == (chosen, 0.0, None)
    assert set(found.scores) == tried
    assert found.scores[chosen] == pytest.approx(table.values[chosen])
    assert sorted(table.tried, key=str) == sorted([None, *tried], key=str)  # each once


def test_a_better_bound_is_said() -> None:
    note = best_kl_weight(CONFIG, Table(4.0, 1, 2, 3, 2, 1)).note
    assert note is not None
    assert "3.000 nats per row on 3 held-out rows with its best kl_weight, 5" in note
    assert "posterior=gaussian 4.000: use that one" in note


def test_a_choice_is_kept_in_a_file(tmp_path: Path) -> None:
    path, made = tmp_path / "kl_weight.json", KLWeight(1.0, {1.0: -0.5, 5.0: -1.0}, -2.0)
    assert stored_kl_weight(path, lambda: made) == made
    assert stored_kl_weight(path, lambda: pytest.fail("chosen twice")) == made
    for wrong in ("[]", "{}", json.dumps({"kl_weight": "much", "scores": {}, "gaussian": 0.0, "note": None}), "\x00"):
        path.write_text(wrong)
        with pytest.raises(ValueError, match=r"kl_weight\.json holds no weight of the KL.*delete it to"):
            stored_kl_weight(path, lambda: made)


def test_the_fit_uses_what_held_out_rows_choose(rng: np.random.Generator, tmp_path: Path, eagerly: None) -> None:
    X = rng.normal(size=(40, 2))
    Y = X @ np.ones((2, 1)) + 0.3 * rng.normal(size=(40, 1))
    lines: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # after two steps the bound may be better
        fitted = fit(CONFIG, X, Y, **TINY, show=lines.append)
        path = tmp_path / "chosen.json"
        assert choose_kl_weight(CONFIG, X, Y, **TINY, path=path) == fitted.kl_weight
        begun = len(lines)
        assert choose_kl_weight(CONFIG, X, Y, **TINY, path=path, show=lines.append) == fitted.kl_weight
    assert len(lines) == begun
    chosen, model = fitted.kl_weight, fitted.predictor.model
    assert chosen is not None
    assert isinstance(model, DeepSigmaPointProcess)
    assert model.kl_weight == chosen.kl_weight == max(chosen.scores, key=lambda weight: chosen.scores[weight])
    said = [line for line in lines if "held out" in line]
    assert len(said) == len(chosen.scores) + 1
    assert any(f"kl_weight=5: {chosen.scores[5.0]:.4f} nats per row held out" in line for line in said)
    with pytest.raises(ValueError, match="kl_weight must be given for 1 row"):
        choose_kl_weight(CONFIG, X[:1], Y[:1])


@pytest.mark.slow
@pytest.mark.ci
def test_few_smooth_rows_want_a_bound(rng: np.random.Generator) -> None:
    X = rng.uniform(-2, 2, size=(150, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.05 * rng.normal(size=150)
    model = DeepGPRegressor(num_inducing=30, posterior="sigma_points", max_iter=800, random_state=0)
    with pytest.warns(UserWarning, match="use that one for these data"):
        model.fit(X, y)
    assert model.kl_weight_ is not None
    assert model.predictor_.model.kl_weight == model.kl_weight_.kl_weight
    assert model.get_params()["model"] is None

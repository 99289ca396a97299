"""TrackedRBM with other visible units than bits: scores, samples, missing values, copies, and errors."""

import pickle
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

from rbm_tracking import TrackedRBM, log_likelihood_exact, log_z_exact
from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.model.visible import Gaussian, Spin, Visible
from tests.rbm_tracking.estimators import Settings, tracked_rbm

QUICK: Settings = {
    "n_components": 4,
    "learning_rate": 0.2,
    "early_stopping": False,
    "max_updates": 200,
    "batch_size": 20,
    "n_temps": 3,
    "n_chains": 10,
    "jit_compile": False,
    "random_state": 0,
}


@pytest.fixture(scope="module")
def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 200)
    level = np.where(rng.random((200, 2)) < 0.8, kind[:, None], 2)
    one_hot = np.eye(3)[level].reshape(200, 6)
    numbers = np.where(kind, 1.0, -1.0)[:, None] * [1, -1, 0.5] + 0.4 * rng.normal(size=(200, 3))
    return {"softmax": one_hot, "spin": 2 * one_hot - 1, "gaussian": numbers}


@pytest.fixture(scope="module")
def fitted(rows: dict[str, np.ndarray]) -> dict[str, TrackedRBM]:
    options: dict[Any, Settings] = {
        "softmax": {"early_stopping": True, "eval_every": 300, "max_updates": 600, "ais_temps": 20}
    }
    return {name: tracked_rbm(visible=name, **{**QUICK, **options.get(name, {})}).fit(X) for name, X in rows.items()}  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["softmax", "spin", "gaussian"])
def test_scores_are_log_likelihoods(fitted: dict[str, TrackedRBM], rows: dict[str, np.ndarray], name: str) -> None:
    rbm, X = fitted[name], rows[name]
    exact = log_z_exact(rbm.rbm_)
    assert rbm.log_z_ == pytest.approx(exact, abs=3 * rbm.log_z_std_ + 0.05)
    np.testing.assert_allclose(
        np.asarray(rbm.score_samples(X)) + rbm.log_z_, log_likelihood_exact(rbm.rbm_, X) + exact, rtol=1e-6
    )
    scores, low, high = rbm.score_samples(X, return_interval=True)
    assert np.all((low <= scores) & (scores <= high))
    if name != "spin":  # whose 0 is no value
        np.testing.assert_allclose(np.asarray(rbm.score_samples(csr_array(X))), scores)
    np.testing.assert_allclose(high - low, rbm.evidence_.high - rbm.evidence_.low)
    kind: dict[str, Visible] = {"softmax": Softmax(6, ((0, 1, 2), (3, 4, 5)), (True, True)), "spin": Spin()}
    assert rbm.rbm_.visible == kind[name] if name in kind else isinstance(rbm.rbm_.visible, Gaussian)
    again = pickle.loads(pickle.dumps(rbm))
    np.testing.assert_array_equal(again.score_samples(X), scores)
    assert clone(rbm).get_params()["visible"] == name


@pytest.mark.parametrize("name", ["softmax", "gaussian"])
def test_samples_are_rows_of_the_model(fitted: dict[str, TrackedRBM], rows: dict[str, np.ndarray], name: str) -> None:
    rbm = fitted[name]
    samples = rbm.sample(150, burn_in=30, thin=10, random_state=1)
    assert samples.shape == (150, rows[name].shape[1])
    rbm.rbm_.visible.check(samples)
    power = 2 if name == "gaussian" else 1  # its two modes are visited in turn
    assert np.abs((samples**power).mean(axis=0) - (rows[name] ** power).mean(axis=0)).max() < 0.35
    np.testing.assert_array_equal(samples, rbm.sample(150, burn_in=30, thin=10, random_state=1))
    moved = rbm.gibbs(rows[name][:20])
    rbm.rbm_.visible.check(np.asarray(moved))


@pytest.mark.parametrize("name", ["softmax", "spin", "gaussian"])
def test_missing_values_come_from_the_others(
    fitted: dict[str, TrackedRBM], rows: dict[str, np.ndarray], name: str
) -> None:
    X, mask = rows[name], np.zeros(rows[name].shape, bool)
    mask[:, : 3 if name != "gaussian" else 1] = True
    found = fitted[name].impute(np.where(mask, np.nan, X), mask)
    assert found.is_exact.all()
    of_model = ((found.values - X)[mask] ** 2).mean()
    of_means = ((X.mean(axis=0) - X)[mask] ** 2).mean()
    assert of_model < 0.9 * of_means


def test_partial_fit_takes_all_units(rows: dict[str, np.ndarray]) -> None:
    rbm = tracked_rbm(visible="gaussian", **QUICK)
    for _ in range(3):
        rbm.partial_fit(rows["gaussian"][:50])
    assert rbm.n_updates_ == 3
    assert np.isfinite(rbm.score(rows["gaussian"]))


@pytest.mark.parametrize(
    ("options", "X", "message"),
    [
        ({"visible": "potts"}, [[0.0, 1.0]] * 3, "visible must be one of auto, bernoulli, softmax"),
        ({"groups": [[0, 1]]}, [[0.0, 1.0]] * 3, "groups are of softmax units; give visible='softmax'"),
        ({"visible": "spin"}, [[0.0, 1.0]] * 3, "X must be -1 or 1 everywhere"),
        (
            {"visible": "softmax", "groups": 2},
            [[0, 3], [1, 2], [2, 2]],
            r"whole numbers, texts .* without groups, .* with groups, got values from 0 to 3",
        ),
        (
            {"visible": "softmax", "groups": 2},
            [["a", "b"], ["b", "b"]],
            r"texts .* without groups, and 0 or 1 in a column for each level with groups, got texts",
        ),
        ({"visible": "softmax"}, ["ACD", "ACE"], r"got a list of texts; .*np.array\(\[list\(row\) for row in X\]\)"),
        (
            {"visible": "gaussian"},
            [[1.0, 50.0], [0.0, 0.0], [2.0, -50.0]],
            r"column 1 of X; standardise .*StandardScaler",
        ),
        ({"visible": "softmax", "groups": 3}, [[1.0, 0.0]] * 3, "a divisor of the 2 columns, got 3"),
        (
            {"visible": "gaussian"},
            [[1.0, 5.0], [0.0, 5.0], [2.0, 5.0]],
            "column 1 of X is 5 in every row; leave it out",
        ),
        ({"visible": "gaussian"}, [[1.0, 1e6], [0.0, 2e6], [2.0, 3e6]], r"column 1 of X; standardise .*StandardScaler"),
        ({"visible": "gaussian"}, [[1.0, 1e6], [0.0, 1e6 + 1], [2.0, 1e6 + 3]], "mean 0 and deviation 1 for Gaussian"),
        ({"visible": "gaussian"}, [[4, 6], [15, 1], [9, 5]], "about mean 0 and deviation 1 .* got 9.33.* in column 0"),
        (
            {"visible": {"softmax": [[0, 1]], "drelu": [2]}},
            [[1.0, 0.0, 5.0], [0.0, 1.0, 5.0], [0.0, 1.0, 5.0]],
            "column 2 of X is 5 in every row; leave it out",
        ),
        ({}, [[1.0, np.nan], [0.0, np.nan]], "column 1 of X is NaN in every row; leave it out"),
        (
            {"visible": "softmax"},
            [[0.5, 0.5]] * 3,
            "X must be whole numbers, .* for visible='softmax' .*, got values from 0.5 to 0.5",
        ),
        ({"visible": "softmax", "groups": [[0, 1]]}, [[1.0, 1.0]] * 3, "exactly one 1 in each group of columns, got 2"),
        ({"visible": "softmax", "groups": [[0, 2]]}, [[1.0, 0.0]] * 3, "columns from 0 to 1, got 2"),
        ({"visible": "gaussian", "n_modes": 1}, [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], "n_modes is for bits"),
    ],
)
def test_wrong_units_say_what_to_do(options: Any, X: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tracked_rbm(**{**QUICK, **options}).fit(np.array(X))


def test_rows_of_no_category_are_refused(fitted: dict[str, TrackedRBM], rows: dict[str, np.ndarray]) -> None:
    X = rows["softmax"].copy()
    X[3, :3] = 0
    with pytest.raises(ValueError, match="X must have exactly one 1 in each group of columns, got 0 in row 3"):
        fitted["softmax"].score_samples(X)
    with pytest.raises(ValueError, match=r"codes of categories must be dense .* X\.toarray\(\) makes them so"):
        tracked_rbm(visible="softmax", **QUICK).fit(csr_array(np.array([[1, 2], [3, 0], [1, 1]])))


def test_the_number_of_levels_is_enough_for_an_alignment() -> None:
    """The first letter of one site never occurs in these rows; the number of levels says where it begins."""
    letters = np.random.default_rng(0).integers(0, 3, (60, 5))
    letters[letters[:, 1] == 0, 1] = 1
    X = np.eye(3)[letters].reshape(60, 15)
    model = tracked_rbm(visible="softmax", groups=3, **QUICK).fit(X)
    assert isinstance(model.rbm_.visible, Softmax)
    assert model.rbm_.visible.groups == tuple((i, i + 1, i + 2) for i in range(0, 15, 3))


def test_sparse_rows_are_imputed(fitted: dict[str, TrackedRBM], rows: dict[str, np.ndarray]) -> None:
    mask = np.zeros((4, 6), bool)
    mask[:, :3] = True
    dense = fitted["softmax"].impute(rows["softmax"][:4], mask)
    np.testing.assert_array_equal(fitted["softmax"].impute(csr_array(rows["softmax"][:4]), mask).values, dense.values)

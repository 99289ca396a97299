"""Rectified units and layers of several families, against quadrature and enumeration."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

from rbm_tracking import PartitionTracker, SavedRBM, linear_ladder, load_rbm, rbm_family, save_rbm
from rbm_tracking.estimates.ais import ais, linear_schedule
from rbm_tracking.model.conditionals import impute
from rbm_tracking.model.exact import log_likelihood_exact, log_z_exact
from rbm_tracking.model.families.mixed import Mixed
from rbm_tracking.model.families.rectified import DReLU, ReLU
from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.model.rbm import RBM, TENSORS, energy, log_prob_unnormalised, log_z_independent
from rbm_tracking.model.visible import Bernoulli, Gaussian, Spin, Visible
from rbm_tracking.track.evidence import Choice
from rbm_tracking.track.updates.learning import SMLConfig, initial_state
from rbm_tracking.track.updates.plain_updates import plain_updates
from rbm_tracking.use.search import Trial, best_trial
from tests.rbm_tracking import oracles
from tests.rbm_tracking.estimators import tracked_rbm

Array = np.ndarray
FIELDS = np.array([-40.0, -7.0, -4.9, -1.0, 0.0, 2.0, 9.0])
RELU = ReLU(np.array([0.7]), True)
DRELU = DReLU(np.array([0.7]), np.array([-0.5]), np.array([0.4]), True)
RECTIFIED: dict[str, Visible] = {"relu": RELU, "drelu": DRELU, "two values": DReLU(*np.array([[1.0], [0.5], [-2.0]]))}
rectified = pytest.mark.parametrize("units", RECTIFIED.values(), ids=RECTIFIED.keys())


def integrals(units: Visible, x: float) -> tuple[float, float, float]:
    """log of the integral over one unit, its mean and its variance, by Gauss-Legendre quadrature of pieces."""
    ends = np.array([0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0])
    nodes, weights = np.polynomial.legendre.leggauss(60)
    h = (ends[:-1, None] + np.diff(ends)[:, None] * (nodes + 1) / 2).ravel()
    dh = (np.diff(ends)[:, None] * weights / 2).ravel()
    if not isinstance(units, ReLU):
        h, dh = np.concatenate([h, -h]), np.concatenate([dh, dh])
    log_terms = np.asarray(units.log_measure(h[:, None])) + x * h
    p = dh * np.exp(log_terms - log_terms.max())
    mean = p @ h / p.sum()
    return float(np.log(p.sum()) + log_terms.max()), mean, p @ (h - mean) ** 2 / p.sum()


@rectified
def test_sums_means_and_variances_are_those_of_quadrature(units: Visible) -> None:
    expected = np.array([integrals(units, x) for x in FIELDS]).T
    x = FIELDS[:, None]
    for ops, value, tolerance in ((None, x, 1e-7), (TENSORS, tf.constant(x), 1e-7), (TENSORS, np.float32(x), 2e-5)):
        at: Any = tf.constant(value) if ops is not None else value
        options = () if ops is None else (ops,)
        np.testing.assert_allclose(units.log_normaliser(at, *options), expected[0], rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(np.ravel(units.mean(at, *options)), expected[1], rtol=20 * tolerance)
        np.testing.assert_allclose(
            np.ravel(units.variance(at, *options)), expected[2], rtol=5e-2 if tolerance > 1e-6 else 1e-4
        )


@rectified
def test_draws_have_their_mean_and_variance(units: Visible, rng: np.random.Generator) -> None:
    count = 20_000
    for x in FIELDS:
        noise = rng.random((count, units.num_noise(1)))
        draws = units.draw(np.full((count, 1), x), noise).ravel()
        _, mean, variance = integrals(units, x)
        assert abs(draws.mean() - mean) < 4.5 * np.sqrt(variance / count)
        assert draws.var() == pytest.approx(variance, rel=0.08)
        units.check(draws[:, None])
        in_float32 = units.draw(tf.fill([count, 1], np.float32(x)), tf.constant(noise, tf.float32), TENSORS)
        np.testing.assert_allclose(np.ravel(in_float32), draws, rtol=2e-2, atol=2e-4 * np.sqrt(variance) + 1e-4)


@rectified
def test_slopes_of_own_parameters_are_those_of_the_sum(units: Any) -> None:
    own, step = [np.asarray(part) for part in tf.nest.flatten(units)], 1e-5
    for x in (-6.0, -0.5, 1.5):
        field = np.array([[x]])
        slopes = np.ravel(units.mean_slopes(field))
        for k, part in enumerate(own):
            ends = [
                type(units)(*(p + sign * step if p is part else p for p in own), True).log_normaliser(field)[0]
                for sign in (1, -1)
            ]
            assert slopes[k] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-8)
    moved = units.moved(np.full(units.num_own, 0.1))
    for before, after in zip(own, tf.nest.flatten(moved), strict=True):
        np.testing.assert_allclose(after, before + 0.1)


N_V = 6


def hidden_units() -> Mixed:
    """A bit, a sign, a number, a ReLU and two dReLU units."""
    one = np.zeros(1)
    drelu = DReLU(np.array([0.3, 1.0]), np.array([-0.2, 0.5]), np.array([0.5, -1.0]), True)
    families = (Bernoulli(), Spin(), Gaussian(one + 1.0), ReLU(one + 0.4), drelu)
    return Mixed(((4,), (1,), (2,), (0,), (3, 5)), families)


def make(rng: np.random.Generator, hidden: Visible, visible: Visible = Bernoulli(), dtype: str = "float64") -> RBM:
    parts = [tf.constant(part, dtype) for part in oracles.random_rbm(rng, 6, N_V, 0.7)]
    units = tf.nest.map_structure(lambda part: tf.constant(part, dtype), (visible, hidden))
    return RBM(*parts, *units)


def log_q(rbm: RBM, rows: Array, beta: float = 1.0) -> Array:
    """log q~ of rows with every hidden unit integrated on its own by quadrature, or summed."""
    W, b, c = (np.asarray(part) for part in rbm[:3])
    a = beta * (rows @ W.T + c)
    total = rows @ b
    hidden = hidden_units()
    for columns, family in zip(hidden.columns, hidden.families, strict=True):
        for place, column in enumerate(columns):
            if isinstance(family, DReLU):
                one: Visible = DReLU(*(part[place : place + 1] for part in tf.nest.flatten(family)))
            else:
                one = family
            if isinstance(family, Bernoulli | Spin):
                values = (0.0, 1.0) if isinstance(family, Bernoulli) else (-1.0, 1.0)
                total = total + logsumexp(np.outer(values, a[:, column]), axis=0)
            else:
                total = total + np.array([integrals(one, x)[0] for x in a[:, column]])
    return total


def test_a_layer_of_several_families_has_their_log_z(rng: np.random.Generator) -> None:
    rbm, rows = make(rng, hidden_units()), oracles.binary_vectors(N_V)[:: 2**3]
    np.testing.assert_allclose(log_prob_unnormalised(rbm, tf.constant(rows)), log_q(rbm, rows), rtol=1e-7)
    all_rows = tf.constant(oracles.binary_vectors(N_V))
    for beta in (1.0, 0.4, 0.0):
        by_rows = logsumexp(log_prob_unnormalised(rbm, all_rows, beta))
        assert log_z_exact(rbm, beta) == pytest.approx(by_rows, abs=1e-10)
    assert float(log_z_independent(rbm.b, 6, hidden=rbm.hidden)) == pytest.approx(log_z_exact(rbm, 0.0), abs=1e-10)
    assert np.exp(log_likelihood_exact(rbm, all_rows)).sum() == pytest.approx(1.0, abs=1e-10)
    h = tf.constant([[0.7, -1.0, 0.3, -0.4, 1.0, 0.2]], tf.float64)
    measure = float(rbm.hidden.log_measure(h.numpy())[0])
    W, b, c = (np.asarray(part) for part in rbm[:3])
    expected = -(rows @ W.T + c) @ h.numpy()[0] - rows @ b - measure
    np.testing.assert_allclose(energy(rbm, tf.constant(rows), h), expected)


@pytest.mark.parametrize("generator", ["numpy", "threefry"])
def test_ais_of_several_families_agrees_with_enumeration(
    rng: np.random.Generator, seed: tf.Tensor, generator: str
) -> None:
    rbm = make(rng, hidden_units())
    found = ais(rbm, linear_schedule(60), seed=seed, generator=generator, jit_compile=False)
    assert abs(found.log_z - log_z_exact(rbm)) < 5 * found.standard_error + 0.02
    assert found.standard_error < 0.2


def test_visible_units_of_several_families(rng: np.random.Generator) -> None:
    """Bits of the hidden layer are enumerated; conditionals of a row given others come from the same sums."""
    relu, numbers = ReLU(np.array([0.2]), True), Gaussian(np.array([1.5, 0.8]), True)
    visible = Mixed(((5, 0), (3,), (1, 4), (2,)), (Softmax(2, ((0, 1),), (False,)), relu, numbers, Spin()))
    rbm = make(rng, Bernoulli(), visible)
    W, b, c = (np.asarray(part) for part in rbm[:3])
    h = oracles.binary_vectors(6)
    x = h @ W + b
    log_w = h @ c + logsumexp([0 * x[:, 5], x[:, 5], x[:, 0]], axis=0) + np.logaddexp(x[:, 2], -x[:, 2])
    log_w += np.array([integrals(ReLU(np.array([0.2])), each)[0] for each in x[:, 3]])
    log_w += (0.5 * (np.log(2 * np.pi / np.array([1.5, 0.8])) + x[:, [1, 4]] ** 2 / np.array([1.5, 0.8]))).sum(axis=1)
    assert log_z_exact(rbm) == pytest.approx(logsumexp(log_w), abs=1e-8)
    rows = visible.draw(x[:4], rng.random((4, visible.num_noise(N_V))))
    visible.check(rows)
    with pytest.raises(ValueError, match="must not be negative for relu units, got -1"):
        visible.check(np.where(np.arange(N_V) == 3, -1.0, rows))
    mask = np.zeros(rows.shape, bool)
    mask[:, 1] = True
    found = impute(rbm, rows, mask, rng=rng, num_chains=200, num_steps=60)
    scores = (np.where(mask, 0.0, rows) @ W.T + c) @ h.T + (0.5 * x[:, 1] ** 2 / 1.5)
    p = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
    error = found.values[:, 1] - p @ (x[:, 1] / 1.5)
    assert (np.abs(error) < 5 * found.error[:, 1] + 0.03).all()


def test_training_is_tracked_with_hidden_units_of_several_families(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """Own parameters move up the gradient, and log Z follows."""
    data = np.repeat(rng.random((400, 2)) < 0.5, 3, axis=1).astype(np.float32)
    config = SMLConfig(learning_rate=0.05, generator="numpy", target_chains=40, average=0.0)
    state = initial_state(
        make(rng, hidden_units(), dtype="float32"), linear_ladder(5), 20, seed=seed, data=data, config=config
    )
    before, rows = log_likelihood_exact(state.rbm, data).mean(), rng.integers(0, 400, (200, 50))
    state, seen = plain_updates(config, state, data, rows, 200, seed, np.full(200, 0.05, np.float32))
    assert log_likelihood_exact(state.rbm, data).mean() > before + 1.0
    error = float(seen.log_z[-1]) - log_z_exact(state.rbm)
    assert abs(error) < 4 * float(seen.log_z_std[-1]) + float(seen.lag[-1]) + 0.05
    drelu: Any = state.rbm.hidden
    assert not np.allclose(drelu.families[4].gap, [0.5, -1.0])


def test_a_tracker_of_foreign_samples_knows_the_hidden_units(rng: np.random.Generator) -> None:
    rbm, ladder = make(rng, hidden_units()), linear_ladder(4)
    tracker = PartitionTracker(ladder, family=rbm_family(Bernoulli()))
    rows = oracles.binary_vectors(N_V)
    parts: Any = (*(np.asarray(part) for part in rbm[:3]), rbm.visible, hidden_units())
    table = [log_prob_unnormalised(rbm, tf.constant(rows), float(beta)).numpy() for beta in ladder]
    for _ in range(20):
        samples = []
        for log_p in table:
            samples.append(rows[rng.choice(len(rows), 30, p=np.exp(log_p - logsumexp(log_p)))])
        tracked = tracker.observe(parts, np.stack(samples), learning_rate=None)
    assert not tracked.flags
    assert abs(tracked.log_z - log_z_exact(rbm)) < 4 * tracked.log_z_std + 0.02


def test_files_keep_units_of_both_layers(rng: np.random.Generator, tmp_path: Path) -> None:
    visible = Mixed(((0, 2), (1, 3, 4, 5)), (Bernoulli(), Gaussian(np.full(4, 2.0), True)))
    rbm = make(rng, hidden_units(), visible)
    save_rbm(SavedRBM(rbm, 1.0, 0.1, np.array([1.0, 0.0]), 3), tmp_path / "rbm.npz")
    loaded = load_rbm(tmp_path / "rbm.npz").rbm
    assert (loaded.visible.describe(), loaded.hidden.describe()) == (visible.describe(), rbm.hidden.describe())
    for found, expected in zip(tf.nest.flatten(loaded), tf.nest.flatten(rbm), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_an_estimator_takes_units_of_several_families_in_both_layers(rng: np.random.Generator) -> None:
    bits = np.repeat(rng.random((300, 2)) < 0.5, 2, axis=1).astype(float)
    numbers = np.stack([2 * bits[:, 0] - 1 + 0.5 * rng.normal(size=300), np.abs(rng.normal(size=300))], axis=1)
    X = np.hstack([bits, numbers, np.eye(3)[(bits[:, 0] + bits[:, 2]).astype(int)]])
    columns: Any = {"bernoulli": range(4), "gaussian": [4], "relu": [5], "softmax": [[6, 7, 8]]}
    settings: Any = {"n_temps": 3, "n_chains": 10, "ais_temps": 20, "max_updates": 200, "early_stopping": False}
    model = tracked_rbm(visible=columns, hidden={"bernoulli": 3, "drelu": 3}, random_state=0, **settings).fit(X)
    assert model.components_.shape == (6, 9)
    assert model.transform(X[:5]).shape == (5, 6)
    model.rbm_.visible.check(model.sample(20, burn_in=5, thin=2))
    model.rbm_.visible.check(model.gibbs(X[:5]))
    assert model.score(X) > -7.0  # independent columns: -6.3 and more
    X[::3, 0] = X[1::4, 4] = np.nan
    assert np.isfinite(model.impute(X[:4], n_chains=2, n_steps=4).values).all()
    for wrong, message in (
        ({"visible": {"bernoulli": range(8)}}, "must name each of the 9 columns of X in one family, got column 8"),
        ({"visible": columns, "hidden": {"drelu": 3}, "n_components": 5}, "must name 5 units in all, .* got 3"),
        ({"visible": columns, "hidden": "softmax"}, "hidden must be one of bernoulli, spin, gaussian, relu, drelu"),
        ({"visible": {"number": [0]}}, "visible must name families of bernoulli, spin, .* got 'number'"),
    ):
        with pytest.raises(ValueError, match=message):
            tracked_rbm(**settings, **wrong).fit(X)


def test_width_and_decay_are_chosen_after_fits_whose_score_fell() -> None:
    """A table that is best fitted by 16 units of decay 1e-3, and one that no fit learns by heart."""
    tried: list[tuple[int, float]] = []

    def fit(width: int, decay: float) -> Trial:
        tried.append((width, decay))
        loss = abs(np.log(decay / 1e-3)) + abs(np.log(width / 16))
        return Trial(width, decay, Choice(-loss, 0.01, True), True, {"width": width})

    best = best_trial(None, None, fit)
    assert best.width == 16
    assert best.decay == pytest.approx(1e-3)
    assert tried == [
        (256, 1e-4),
        (256, pytest.approx(1e-3)),
        (256, pytest.approx(1e-2)),
        (64, 1e-3),
        (16, 1e-3),
        (4, 1e-3),
    ]
    assert best_trial(50, 1e-4, fit).width == 50
    tried.clear()
    best_trial(None, None, lambda *of: fit(*of)._replace(is_overfit=False))
    assert tried == [(256, 1e-4)]

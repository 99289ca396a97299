"""Families of visible units against brute force over all rows, and quadrature; sampling, AIS and tracking with them."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

from rbm_tracking import PartitionTracker, SavedRBM, Trainer, linear_ladder, load_rbm, rbm_family, save_rbm
from rbm_tracking.estimates.ais import ais, bracket, linear_schedule
from rbm_tracking.model.exact import is_enumerable, log_likelihood_exact, log_z_exact, moments_exact
from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.model.rbm import (
    RBM,
    TENSORS,
    activations,
    base_rate_biases,
    energy,
    hidden_probs,
    initial_rbm,
    log_prob_unnormalised,
    log_z_independent,
    visible_probs,
)
from rbm_tracking.model.serialization import from_description
from rbm_tracking.model.visible import Bernoulli, Gaussian, Spin, Visible
from rbm_tracking.track.tempering import Chains, gibbs, swap, swap_log_ratio
from rbm_tracking.track.updates.learning import SMLConfig, initial_state
from tests.rbm_tracking import oracles
from tests.statistical import assert_mean_close

N_V, N_H = 5, 3
MIXED = Softmax(N_V, ((3, 0), (1, 4)), (True, False))  # and column 2 is a bit
DISCRETE: dict[str, Visible] = {
    "bits": Bernoulli(),
    "signs": Spin(),
    "mixed": MIXED,
    "categories": Softmax(N_V, ((0, 1, 2), (3, 4)), (True, True)),
}
families = pytest.mark.parametrize("visible", DISCRETE.values(), ids=DISCRETE.keys())
BETAS = [1.0, 0.4, 0.0]


def all_rows(visible: Visible) -> np.ndarray:
    """Every row that the family allows, by trying all of them."""
    values = (-1.0, 1.0) if isinstance(visible, Spin) else (0.0, 1.0)
    rows = np.array(list(itertools.product(values, repeat=N_V)))
    if not isinstance(visible, Softmax):
        return rows
    counts = np.stack([rows[:, list(group)].sum(axis=1) for group in visible.groups], axis=1)
    return rows[((counts == 1) | ((counts == 0) & ~np.array(visible.is_required))).all(axis=1)]


def make(rng: np.random.Generator, visible: Visible, n_h: int = N_H, n_v: int = N_V, scale: float = 1.0) -> RBM:
    return RBM(*map(tf.constant, oracles.random_rbm(rng, n_h, n_v, scale)))._replace(visible=visible)


def precision_of(visible: Visible) -> Any:
    assert isinstance(visible, Gaussian)
    return visible.precision


def log_joint(rbm: RBM, rows: np.ndarray, beta: float = 1.0) -> np.ndarray:
    """-E_beta of all rows and hidden states, [V, H]."""
    W, b, c = (np.asarray(part) for part in rbm[:3])
    h = oracles.binary_vectors(len(c))
    return beta * (rows @ W.T @ h.T + h @ c) + (rows @ b)[:, None]


@families
@pytest.mark.parametrize("beta", BETAS)
def test_conditionals_and_log_z_are_those_of_the_table(rng: np.random.Generator, visible: Visible, beta: float) -> None:
    rbm, rows, h = make(rng, visible), all_rows(visible), oracles.binary_vectors(N_H)
    table = log_joint(rbm, rows, beta)
    p = np.exp(table - logsumexp(table))
    np.testing.assert_allclose(visible_probs(rbm, tf.constant(h), beta), p.T @ rows / p.sum(0)[:, None], atol=1e-12)
    np.testing.assert_allclose(hidden_probs(rbm, tf.constant(rows), beta), p @ h / p.sum(1)[:, None], atol=1e-12)
    np.testing.assert_allclose(log_prob_unnormalised(rbm, tf.constant(rows), beta), logsumexp(table, axis=1))
    np.testing.assert_allclose(-energy(rbm, tf.constant(rows)[:, None], tf.constant(h)[None], beta), table, atol=1e-12)
    x = beta * h @ rbm.W.numpy() + rbm.b.numpy()
    expected = logsumexp(x @ rows.T, axis=1)
    np.testing.assert_allclose(visible.log_normaliser(x), expected)
    np.testing.assert_allclose(visible.log_normaliser(tf.constant(x), TENSORS), expected)
    assert log_z_exact(rbm, beta) == pytest.approx(logsumexp(table), abs=1e-12)
    if beta == 0:
        assert float(log_z_independent(rbm.b, N_H, visible)) == pytest.approx(logsumexp(table), abs=1e-12)


@families
@pytest.mark.parametrize("n_h", [2, 7])  # the hidden units are enumerated, and the visible ones
def test_probabilities_of_all_allowed_rows_sum_to_one(rng: np.random.Generator, visible: Visible, n_h: int) -> None:
    rbm, rows = make(rng, visible, n_h), all_rows(visible)
    p = np.exp(log_likelihood_exact(rbm, rows))
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert visible.num_states(N_V) == len(rows)
    states = visible.states(N_V, 0, len(rows))
    assert {tuple(row) for row in states} == {tuple(row) for row in rows}
    h = hidden_probs(rbm, tf.constant(rows)).numpy()
    moments = moments_exact(rbm)
    for found, expected in zip(moments, (p @ rows, p @ h, (h * p[:, None]).T @ rows), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)


def conditional(visible: Visible, mean: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Probabilities of rows by the means of the units given the hidden ones: [H, n_v], [V, n_v] to [H, V]."""
    if isinstance(visible, Spin):
        mean, rows = (mean + 1) / 2, (rows + 1) / 2
    bits = np.where(rows[None] == 1, mean[:, None], 1 - mean[:, None])
    if not isinstance(visible, Softmax):
        return bits.prod(axis=2)
    rest = np.setdiff1d(np.arange(N_V), np.concatenate(visible.groups))
    p = bits[:, :, rest].prod(axis=2)
    for group in map(list, visible.groups):
        chosen = mean[:, group] @ rows[:, group].T
        p = p * np.where(rows[:, group].sum(axis=1) == 1, chosen, 1 - mean[:, group].sum(axis=1)[:, None])
    return p


@families
@pytest.mark.parametrize("betas", [(1.0, 0.3), (0.7, 0.0)])
def test_gibbs_and_swaps_leave_the_law_as_it_is(
    rng: np.random.Generator, visible: Visible, betas: tuple[float, float], seed: tf.Tensor
) -> None:
    """The whole transition matrices: pi P = pi to 1e-12."""
    rbm, rows, h = make(rng, visible, scale=1.5), all_rows(visible), oracles.binary_vectors(N_H)
    rounds, laws = [], []
    for beta in betas:
        h_one = hidden_probs(rbm, tf.constant(rows), beta).numpy()[:, None]
        h_given_v = np.prod(np.where(h[None] == 1, h_one, 1 - h_one), axis=-1)
        v_given_h = conditional(visible, visible_probs(rbm, tf.constant(h), beta).numpy(), rows)
        matrix, table = h_given_v @ v_given_h, log_joint(rbm, rows, beta)
        pi = np.exp(logsumexp(table, axis=1) - logsumexp(table))
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-12)
        np.testing.assert_allclose(pi @ matrix, pi, atol=1e-12)
        rounds.append(matrix)
        laws.append(pi)
    x, y = np.divmod(np.arange(len(rows) ** 2), len(rows))
    v = tf.constant(np.stack([rows[x], rows[y]]))
    chains = Chains(v, activations(rbm, v), tf.constant(np.repeat([[0], [1]], len(x), axis=1), tf.int32))
    _, swaps = swap(chains, tf.constant(betas, tf.float64), seed=seed, step=tf.constant(0))
    acceptance = np.exp(np.minimum(swap_log_ratio(swaps.d_upper, swaps.d_lower).numpy()[0], 0.0))
    exchange = np.diag(1 - acceptance)
    exchange[np.arange(len(x)), y * len(rows) + x] += acceptance
    both = np.kron(*laws)
    np.testing.assert_allclose(both @ exchange, both, atol=1e-12)


@families
def test_draws_invert_the_distribution_function(rng: np.random.Generator, visible: Visible) -> None:
    """On an even grid of noise every unit is as frequent as it is probable, to 1 / 4096, in NumPy and in a graph."""
    x, size = 2 * rng.normal(size=N_V), 4096
    grid = (np.arange(size) + 0.5) / size
    noise = np.stack([rng.permutation(grid) for _ in range(visible.num_noise(N_V))], axis=1)
    fields = np.tile(x, (size, 1))
    drawn = visible.draw(fields, noise)
    visible.check(drawn)
    np.testing.assert_allclose(drawn.mean(axis=0), visible.mean(x), atol=2.1 / size)
    for k, step in enumerate(1e-4 * np.eye(len(x))):  # the variance is the derivative of the mean, to O(step^2)
        slope = (visible.mean(x + step) - visible.mean(x - step))[k] / 2e-4
        assert visible.variance(x)[k] == pytest.approx(slope, rel=1e-6, abs=1e-9)
    np.testing.assert_array_equal(visible.draw(tf.constant(fields), tf.constant(noise), TENSORS), drawn)
    compiled = tf.function(lambda x, noise: visible.draw(x, noise, TENSORS), jit_compile=True, autograph=False)
    in_float32 = compiled(tf.constant(fields, tf.float32), tf.constant(noise, tf.float32)).numpy()
    visible.check(in_float32)
    assert np.mean(in_float32 != drawn) < 1e-3  # numbers within rounding of a limit


def test_extreme_fields_still_choose_one_option() -> None:
    visible = Softmax(3, ((0, 1, 2),), (True,))
    x = np.array([[-400.0, -500.0, -450.0], [3e4, 0.0, 3e4], [0.0, 0.0, -3e38]], np.float32)
    for noise in (0.0, 0.5, 1 - 2.0**-24):
        drawn = np.asarray(visible.draw(tf.constant(x), tf.fill([3, 1], noise), TENSORS))
        np.testing.assert_array_equal(drawn.sum(axis=1), 1.0)
        assert np.all(np.isfinite(visible.log_normaliser(tf.constant(x, tf.float64), TENSORS)))


@families
def test_gibbs_draws_from_the_conditionals(rng: np.random.Generator, visible: Visible, seed: tf.Tensor) -> None:
    rbm, rows = make(rng, visible), all_rows(visible)
    table = log_joint(rbm, rows)
    pi = np.exp(logsumexp(table, axis=1) - logsumexp(table))
    v = tf.constant(rows[rng.choice(len(rows), size=(1, 20_000), p=pi)])
    chains = Chains(v, activations(rbm, v), tf.zeros([1, 20_000], tf.int32))
    beta = tf.ones([1], tf.float64)
    moved = gibbs(rbm, chains, beta, steps=1, seed=seed, step=tf.constant(0))
    varies = np.ptp(rows, axis=0) > 0
    assert_mean_close(moved.v.numpy()[0][:, varies], (pi @ rows)[varies], min_detectable=0.04)
    h = hidden_probs(rbm, v[0]).numpy()
    assert np.corrcoef(h[:, 0], hidden_probs(rbm, moved.v[0]).numpy()[:, 0])[0, 1] > 0.02  # one round, not new draws


@families
def test_base_rates_are_the_best_model_without_weights(rng: np.random.Generator, visible: Visible) -> None:
    rows = all_rows(visible)
    data = rows[rng.integers(0, len(rows), 60)]
    np.testing.assert_allclose(visible.mean(base_rate_biases(data, visible=visible)), data.mean(axis=0), atol=1e-9)
    constant = np.tile(rows[:1], (10, 1))
    assert np.isfinite(base_rate_biases(constant, visible=visible)).all()


@pytest.mark.parametrize("scale", [1.0, 60.0])
@pytest.mark.parametrize("visible", [Spin(), Softmax(24, tuple((3 * i, 3 * i + 1, 3 * i + 2) for i in range(7)))])
def test_log_z_in_blocks_is_the_sum_over_hidden_states(
    rng: np.random.Generator, visible: Visible, scale: float
) -> None:
    """12 hidden units, more than a table holds; fields up to 700 apart, which a product of factors would not."""
    rbm = make(rng, visible, 12, 24, scale)
    h = oracles.binary_vectors(12)
    x = h @ rbm.W.numpy() + rbm.b.numpy()
    expected = logsumexp(h @ rbm.c.numpy() + visible.log_normaliser(x))
    assert log_z_exact(rbm) == pytest.approx(expected, rel=1e-12)


# Gaussian units


def gaussian(rng: np.random.Generator, n_v: int, n_h: int, is_learnt: bool = False) -> RBM:
    return make(rng, Gaussian(tf.constant(np.exp(0.5 * rng.normal(size=n_v))), is_learnt), n_h, n_v)


def test_a_gaussian_model_of_two_units_is_that_of_quadrature(rng: np.random.Generator) -> None:
    rbm = gaussian(rng, 2, 3)
    grid, step = np.linspace(-14, 14, 701, retstep=True)  # the trapezium rule of smooth functions converges at once
    v = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(log_prob_unnormalised(rbm, tf.constant(v)).numpy())
    assert log_z_exact(rbm) == pytest.approx(np.log(density.sum() * step**2), abs=1e-9)
    assert np.exp(log_likelihood_exact(rbm, v)).sum() * step**2 == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(moments_exact(rbm).v, density @ v / density.sum(), atol=1e-9)
    assert log_likelihood_exact(rbm, v).max() <= rbm.visible.highest_log_p(2)


@pytest.mark.parametrize("n_h", [2, 12])
def test_a_gaussian_model_is_a_mixture_of_gaussians(rng: np.random.Generator, n_h: int) -> None:
    rbm = gaussian(rng, 4, n_h)
    W, b, c, precision = (np.asarray(part) for part in (*rbm[:3], precision_of(rbm.visible)))
    h = oracles.binary_vectors(n_h)
    means = (h @ W + b) / precision
    log_weights = h @ c + 0.5 * (means**2 * precision).sum(axis=1) + 0.5 * np.log(2 * np.pi / precision).sum()
    assert log_z_exact(rbm) == pytest.approx(logsumexp(log_weights), rel=1e-12)
    v = rng.normal(size=(6, 4))
    normal = -0.5 * (precision * (v[:, None] - means) ** 2 - np.log(precision / (2 * np.pi))).sum(axis=2)
    expected = logsumexp(log_weights + normal, axis=1) - logsumexp(log_weights)
    np.testing.assert_allclose(log_likelihood_exact(rbm, v), expected, rtol=1e-10)


def test_gaussian_draws_are_normal(rng: np.random.Generator) -> None:
    visible = Gaussian(np.array([0.25, 4.0]))
    x = np.tile([1.0, -2.0], (4096, 1))
    noise = np.stack([rng.permutation((np.arange(4096) + 0.5) / 4096) for _ in range(2)], axis=1)
    v = visible.draw(x, noise)
    np.testing.assert_allclose(v.mean(axis=0), [4.0, -0.5], atol=1e-6)
    np.testing.assert_allclose(v.var(axis=0), [4.0, 0.25], rtol=2e-3)
    in_float32 = visible.draw(tf.constant(x, tf.float32), tf.constant(noise, tf.float32), TENSORS)
    np.testing.assert_allclose(in_float32, v, rtol=1e-3, atol=1e-4)
    assert np.isfinite(visible.draw(x[:1], np.zeros([1, 2]))).all()


def test_the_step_of_the_precisions_is_up_the_gradient(rng: np.random.Generator) -> None:
    """Of the exact log-likelihood, by differences in log precision."""
    rbm, data, step = gaussian(rng, 3, 2, True), rng.normal(size=(40, 3)), 1e-5
    W, b, c, precision = (np.asarray(part) for part in (*rbm[:3], precision_of(rbm.visible)))
    h = oracles.binary_vectors(2)
    x = h @ W + b
    p = np.exp(h @ c + rbm.visible.log_normaliser(x) - log_z_exact(rbm))
    model = p @ ((x / precision) ** 2 + 1 / precision)
    slopes = np.mean(rbm.visible.slopes(data), axis=0) + 0.5 * precision * model
    moved = rbm.visible.moved(1e-4 * slopes)
    for i in range(3):
        ends = []
        for sign in (1, -1):
            other = precision * np.exp(sign * step * (np.arange(3) == i))
            ends.append(log_likelihood_exact(rbm._replace(visible=Gaussian(tf.constant(other), True)), data).mean())
        assert np.log(np.asarray(precision_of(moved)) / precision)[i] / 1e-4 == pytest.approx(
            (ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=1e-7
        )


# log Z of all families, by AIS and by the filter


ALL = {**DISCRETE, "numbers": None}
everything = pytest.mark.parametrize("name", ALL)


def any_rbm(rng: np.random.Generator, name: str) -> RBM:
    visible = ALL[name]
    return gaussian(rng, N_V, N_H, True) if visible is None else make(rng, visible)


@pytest.mark.parametrize("name", ["mixed", "numbers"])
def test_ais_brackets_the_exact_log_z(rng: np.random.Generator, name: str, seed: tf.Tensor) -> None:
    rbm = any_rbm(rng, name)
    base = np.asarray(rbm.b) + 0.3
    found = bracket(rbm, linear_schedule(60), num_chains=100, seed=seed, base_b=base, jit_compile=False)
    for result in found:
        assert abs(result.log_z - log_z_exact(rbm)) < 5 * result.standard_error + 0.02
        assert result.standard_error < 0.2
        rbm.visible.check(result.v)
    exactly = ais(rbm._replace(W=0 * rbm.W, c=0 * rbm.c), [0.0, 1.0], seed=seed, jit_compile=False)
    assert exactly.log_z == pytest.approx(float(log_z_independent(rbm.b, N_H, rbm.visible)), abs=1e-9)


@everything
def test_the_tracker_without_a_framework_follows_the_exact_log_z(rng: np.random.Generator, name: str) -> None:
    rbm, ladder = any_rbm(rng, name), linear_ladder(4)
    tracker = PartitionTracker(ladder, family=rbm_family(rbm.visible), bias_variance=0.0, initial_bias_variance=0.0)
    parts = [np.asarray(part) for part in rbm[:3]]
    precision = np.asarray(rbm.visible.precision) if isinstance(rbm.visible, Gaussian) else None
    errors = []
    for _ in range(60):
        visible = rbm.visible if precision is None else Gaussian(precision, True)
        parameters: Any = (*parts, visible)
        samples = [exact_samples(rng, parameters, float(beta)) for beta in ladder]
        tracked = tracker.observe(parameters, np.stack(samples), learning_rate=None)
        errors.append(
            (tracked.log_z - log_z_exact(RBM(*map(tf.constant, parts))._replace(visible=visible))) / tracked.log_z_std
        )
        parts = [part + 0.01 * rng.normal(size=part.shape) for part in parts]
        precision = None if precision is None else precision * np.exp(0.01 * rng.normal(size=N_V))
    assert tracked.flags == []
    assert tracked.log_z_std < 0.2
    assert np.mean(np.abs(errors[10:]) < 1.96) > 0.75
    assert np.abs(errors[10:]).max() < 4


def exact_samples(rng: np.random.Generator, parameters: Any, beta: float, count: int = 25) -> np.ndarray:
    """Draws of the hidden units by the table of their states, and of the visible ones given them."""
    W, b, c, visible = parameters
    h = oracles.binary_vectors(len(c))
    log_p = beta * h @ c + visible.log_normaliser(beta * h @ W + b)
    chosen = h[rng.choice(len(h), count, p=np.exp(log_p - logsumexp(log_p)))]
    return visible.draw(beta * chosen @ W + b, rng.random((count, visible.num_noise(len(b)))))


@pytest.mark.parametrize("name", ["mixed", "numbers"])
def test_training_is_tracked_and_learns(rng: np.random.Generator, name: str, seed: tf.Tensor) -> None:
    """Log Z within its interval of the exact one, and a likelihood above that of independent units."""
    kind = rng.integers(0, 2, 500)  # two kinds of rows, with noise
    if name == "numbers":
        data = np.where(kind, 2.0, -2.0)[:, None] * [1, -1, 1, 0, 1] + rng.normal(size=(500, N_V))
        visible: Visible = Gaussian(1 / data.var(axis=0), True)
    else:
        data, visible = np.array([[1.0, 0, 0, 0, 1], [0, 1, 1, 1, 0]])[kind], MIXED
        is_noise, rows = rng.random(500) < 0.2, all_rows(MIXED)
        data[is_noise] = rows[rng.integers(0, len(rows), is_noise.sum())]
    # The tracked log Z against the exact one at the end of each block
    rbm = initial_rbm(4, seed=seed, data=data, visible=visible, weight_scale=0.1, dtype=tf.float64)
    state = initial_state(rbm, linear_ladder(4), 20, seed=seed, data=data, config=SMLConfig.paper())
    trainer = Trainer(state, SMLConfig.paper(learning_rate=0.05), jit_compile=False)
    scores = []
    for block in range(4):
        observed = trainer.advance(visible.stored(data), rng.integers(0, 500, (100, 50)), seed)
        if block:
            half = max(1.96 * observed.log_z_std[-1], observed.lag[-1])
            scores.append((observed.log_z[-1] - log_z_exact(trainer.state.rbm)) / half)
    assert np.abs(scores).max() < 2
    # The likelihood, and widths where they are learnt
    gain = log_likelihood_exact(trainer.state.rbm, data).mean() - log_likelihood_exact(rbm, data).mean()
    assert gain > 0.3
    if name == "numbers":
        assert (
            np.abs(np.log(precision_of(trainer.state.rbm.visible).numpy() / precision_of(rbm.visible).numpy())).max()
            > 0.02
        )


# Values, files and errors


@everything
def test_a_saved_model_comes_back(rng: np.random.Generator, name: str, tmp_path: Path) -> None:
    rbm = any_rbm(rng, name)
    save_rbm(SavedRBM(rbm, 1.0, 0.1, np.array([1.0, 0.0]), 3), tmp_path / "rbm.npz")
    loaded = load_rbm(tmp_path / "rbm.npz").rbm
    assert loaded.visible.describe() == rbm.visible.describe()
    for old, new in zip(tf.nest.flatten(rbm), tf.nest.flatten(loaded), strict=True):
        np.testing.assert_array_equal(old, new)
    assert log_z_exact(loaded) == log_z_exact(rbm)


@pytest.mark.parametrize(
    ("visible", "row", "message"),
    [
        (Spin(), [0.0, 1, 1, 1, 1], "must be -1 or 1 everywhere, got 0.0 in row 0, column 0; 2 x - 1"),
        (MIXED, [0.0, 0, 0, 0, 1], "exactly one 1 in each group of columns, got 0 in row 0, group 3,0"),
        (MIXED, [1.0, 1, 0, 0, 1], "at most one 1 in each group of columns, got 2 in row 0, group 1,4"),
        (Gaussian(np.ones(5)), [np.nan, 0, 0, 0, 0], "a finite number everywhere, got nan in row 0, column 0"),
        (Gaussian(np.ones(5)), [0.0, 0], "must have 5 columns, one for each visible unit, got 2"),
    ],
)
def test_rows_that_are_not_allowed(visible: Visible, row: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        visible.check([row])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, ()), "at least one group"),
        ((3, ((0, 3),)), "columns from 0 to 2, got 3"),
        ((3, ((0, 1), (1, 2))), "column 1 is in two places"),
        ((3, ((0, 1),), (True, True)), "an entry for each of 1 groups, got 2"),
    ],
)
def test_groups_that_cannot_be(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Softmax(*arguments)


def test_what_cannot_be_enumerated(rng: np.random.Generator) -> None:
    many = RBM(*map(tf.constant, oracles.random_rbm(rng, 26, 30)))._replace(visible=Gaussian(tf.ones(30)))
    assert not is_enumerable(many)
    with pytest.raises(ValueError, match="at most 25 hidden or visible units"):
        log_z_exact(many)
    assert is_enumerable(many._replace(visible=Softmax(30, (tuple(range(30)),))))
    with pytest.raises(ValueError, match=r"visible Gaussian units must have the shape \[5\], got \[4\]"):
        log_z_exact(make(rng, Gaussian(tf.ones(4))))
    with pytest.raises(ValueError, match="described by"):
        from_description({"family": "unknown"})


def test_numbers_of_a_wrong_type_are_not_asked_to_be_bits() -> None:
    with pytest.raises(ValueError, match="must be a finite number everywhere, got dtype <U1"):
        Gaussian(np.ones(1)).check([["a"]])

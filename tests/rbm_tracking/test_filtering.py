"""rbm_tracking.track.filtering: the filter against dense Gaussian conditioning in the joint form of Figure 2; the
same numbers for arrays and for tensors."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.model.visible import Tensor
from rbm_tracking.track.evidence import FLAGS, flag_names, tracking_errors
from rbm_tracking.track.filtering import (
    Estimate,
    FilterState,
    anchor,
    bridge,
    half_width,
    health_flags,
    inflation,
    initial_filter,
    insert_level,
    known,
    lag,
    log_mean_exp,
    log_z_std,
    predict,
    update,
)

M = 5
C = 9
RATES = tf.fill([M - 1], tf.constant(0.6, tf.float64))
TOLERANCE = 1e-10  # of numbers of order 1 to 100, 40 updates long


def tensors(structure: Any) -> Any:
    return tf.nest.map_structure(tf.constant, structure)


def in_graph(log_z: np.ndarray, **options: float) -> FilterState:
    """The first state of the filter, in tensors."""
    state: FilterState = tensors(initial_filter(log_z, **options))
    return state


def random_state(rng: np.random.Generator) -> FilterState:
    root = rng.normal(size=(M + 1, M + 1))
    state = in_graph(rng.normal(size=M))
    return state._replace(mean=tf.constant(rng.normal(size=M + 1)), cov=tf.constant(root @ root.T / M))


def estimate(value: np.ndarray, variance: np.ndarray) -> Estimate:
    return Estimate(tf.constant(value), tf.constant(variance), tf.fill(value.shape, tf.constant(10.0, tf.float64)))


def condition(mean: np.ndarray, cov: np.ndarray, H: np.ndarray, y: np.ndarray, R: np.ndarray) -> tuple:
    """N(mean, cov) given y = H z + N(0, R), by the information form of Figure 2 with the inverses it leaves out."""
    precision = np.linalg.inv(cov)
    R_inv = np.linalg.inv(R)
    V = np.linalg.inv(H.T @ R_inv @ H + precision)
    return V @ (H.T @ R_inv @ y + precision @ mean), V


def joint_prediction(
    state: FilterState, change: np.ndarray, variance: np.ndarray, sigma_z: float, bias_variance: float
) -> tuple:
    """(i) to (iii) of Figure 2 on (zeta_{t-1}, b_{t-1}, zeta_t, b_t); the last temperature is not measured."""
    size = M + 1
    mean = np.r_[state.mean, state.mean]
    drift = np.diag(np.r_[np.full(M, sigma_z**2), bias_variance])
    cov = np.block([[state.cov, state.cov], [state.cov, state.cov + drift]])
    # What O^(dt) measures: zeta_t - zeta_{t-1} of all but the last temperature
    C = np.zeros((M - 1, 2 * size))
    C[:, : M - 1], C[:, size : size + M - 1] = -np.eye(M - 1), np.eye(M - 1)
    C[0, 2 * size - 1] = 1.0  # the estimate at beta = 1 is off by b_t
    mean, cov = condition(mean, cov, C, change[:-1], np.diag(variance[:-1]))
    return mean[size:], cov[size:, size:]


@pytest.mark.parametrize("sigma_z", [0.1, 1.0, 10.0])
def test_prediction_is_the_joint_form(rng: np.random.Generator, sigma_z: float) -> None:
    """Equal where zeta_M is not measured; with sigma_z finite it keeps its own random walk in the joint form."""
    state, change, variance = random_state(rng), rng.normal(size=M), rng.uniform(0.1, 1, M)
    expected_mean, expected_cov = joint_prediction(state, change, variance, sigma_z, 0.2)
    got = predict(state, estimate(change, variance), bias_variance=0.2, sigma_z=sigma_z)
    kept = np.r_[0 : M - 1, M]  # all but zeta_M, which `anchor` sets afterwards
    np.testing.assert_allclose(np.asarray(got.mean)[kept], expected_mean[kept], rtol=1e-9)
    np.testing.assert_allclose(np.asarray(got.cov)[np.ix_(kept, kept)], expected_cov[np.ix_(kept, kept)], rtol=1e-8)


def test_infinite_sigma_z_is_the_limit(rng: np.random.Generator) -> None:
    state, change, variance = random_state(rng), rng.normal(size=M), rng.uniform(0.1, 1, M)
    limit = predict(state, estimate(change, variance), bias_variance=0.2)
    near = predict(state, estimate(change, variance), bias_variance=0.2, sigma_z=1e4)
    np.testing.assert_allclose(near.mean, limit.mean, atol=1e-6)
    np.testing.assert_allclose(near.cov, limit.cov, atol=1e-6)


def test_infinite_sigma_z_is_a_control_input(rng: np.random.Generator) -> None:
    state, change, variance = random_state(rng), rng.normal(size=M), rng.uniform(0.1, 1, M)
    got = predict(state, estimate(change, variance), bias_variance=0.2, factor=3.0)
    A = np.eye(M + 1)
    A[0, -1] = -1.0
    inner = np.r_[np.ones(M - 1), 0.0]
    cov = np.array(state.cov)
    cov[-1, -1] += 0.2
    np.testing.assert_allclose(got.mean, A @ np.asarray(state.mean) + np.r_[inner * change, 0.0], rtol=1e-12)
    np.testing.assert_allclose(got.cov, A @ cov @ A.T + np.diag(np.r_[3.0 * inner * variance, 0.0]), rtol=1e-12)


def test_update_is_dense_conditioning(rng: np.random.Generator) -> None:
    state, value, variance = random_state(rng), rng.normal(size=M - 1), rng.uniform(0.1, 1, M - 1)
    H = np.zeros((M - 1, M + 1))
    for i in range(M - 1):
        H[i, i], H[i, i + 1] = -1.0, 1.0
    for factor in (1.0, 7.0):
        mean, cov = condition(np.asarray(state.mean), np.asarray(state.cov), H, value, np.diag(factor * variance))
        got = update(state, estimate(value, variance), RATES, factor=factor)
        np.testing.assert_allclose(got.mean, mean, rtol=1e-9)
        np.testing.assert_allclose(got.cov, cov, rtol=1e-8, atol=1e-12)


def test_innovations_are_judged_without_the_inflation(rng: np.random.Generator) -> None:
    """The health of a filter whose variances are seven times as large for their autocorrelation is that without."""
    state, value, variance = random_state(rng), rng.normal(size=M - 1), rng.uniform(0.1, 1, M - 1)
    plain = update(state, estimate(value, variance), RATES, factor=1.0).health
    inflated = update(state._replace(cov=7.0 * state.cov), estimate(value, variance), RATES, factor=7.0).health
    for a, b in zip(plain, inflated, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_anchor_conditions_on_the_known_log_z(rng: np.random.Generator) -> None:
    state = in_graph(rng.normal(size=M))
    got = anchor(state, tf.constant(3.0, tf.float64))
    assert float(got.mean[M - 1]) == 3.0
    assert not np.any(got.cov[M - 1])
    assert not np.any(got.cov[:, M - 1])
    np.testing.assert_array_equal(np.delete(got.mean, M - 1), np.delete(state.mean, M - 1))


def test_a_known_log_z_is_conditioned_on(rng: np.random.Generator) -> None:
    state = random_state(rng)
    found = known(state, 3.0)
    H = np.eye(M + 1)[:1]
    mean, cov = condition(np.asarray(state.mean), np.asarray(state.cov), H, np.array([3.0]), np.array([[1e-12]]))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-3, atol=1e-3)  # what the inverses leave of their digits
    np.testing.assert_allclose(found.cov, cov, atol=1e-3)
    assert float(found.mean[0]) == pytest.approx(3.0, abs=1e-9)
    assert float(log_z_std(found)) == pytest.approx(0.0, abs=1e-5)


def test_bridges_alone_add_up_from_the_anchor(rng: np.random.Generator) -> None:
    """Exact bridges to a vague prior give zeta_1 = zeta_M - sum of differences."""
    state = anchor(in_graph(np.zeros(M), variance=1e6), tf.constant(2.0, tf.float64))
    value = rng.normal(size=M - 1)
    got = update(state, estimate(value, np.full(M - 1, 1e-4)), RATES, factor=1.0)
    np.testing.assert_allclose(got.mean[0], 2.0 - value.sum(), atol=1e-6)
    np.testing.assert_allclose(log_z_std(got), np.sqrt((M - 1) * 1e-4), rtol=1e-4)


def simulate(rng: np.random.Generator, steps: int, correlation: float, inflate: bool) -> tuple[np.ndarray, FilterState]:
    """A random walk of zeta with a biased estimate at the first level; errors and deviations of log Z over the run."""
    zeta, bias = np.r_[np.cumsum(rng.normal(size=M - 1)), 0.0], -0.2
    state = anchor(in_graph(zeta, variance=0.1), tf.constant(0.0, tf.float64))
    spread, noise = np.full(M - 1, 0.3), np.zeros(M - 1)
    scores = []

    @tf.function(autograph=False)
    def run(s: FilterState, bridges: Estimate, change: Estimate) -> tuple[FilterState, FilterState]:
        factor = inflation(s.health) if inflate else tf.constant(1.0, tf.float64)
        measured = update(s, bridges, RATES, factor=factor)
        return measured, predict(measured, change, bias_variance=1e-6, factor=factor)

    for _ in range(steps):
        noise = correlation * noise + np.sqrt(1 - correlation**2) * spread * rng.normal(size=M - 1)
        bridges = estimate(np.diff(zeta) + noise, spread**2)
        change = np.r_[0.02 * rng.normal(size=M - 1), 0.0]
        measured = change + np.r_[bias, np.zeros(M - 1)] + 0.05 * np.r_[rng.normal(size=M - 1), 0.0]
        filtered, state = run(state, bridges, estimate(measured, np.full(M, 0.05**2)))
        scores.append([float(filtered.mean[0]) - zeta[0], float(log_z_std(filtered))])
        zeta = zeta + change
        state = anchor(state, tf.constant(zeta[-1]))
    return np.array(scores), state


@pytest.mark.slow
def test_filter_is_calibrated_and_learns_the_bias(rng: np.random.Generator) -> None:
    scores, state = simulate(rng, 1000, 0.0, inflate=False)
    z = scores[300:, 0] / scores[300:, 1]
    assert 0.6 < np.mean(z**2) < 1.7  # errors are correlated over about 20 updates: some 60 independent ones
    assert abs(float(state.mean[-1]) + 0.2) < 0.05
    assert 0.9 < float(state.health.nis) < 1.1
    assert float(inflation(state.health)) < 5.0  # from 10 at the start towards 1
    assert scores[300:, 0].std() < 0.5 * 0.6  # less noise than the bridges alone


@pytest.mark.slow
def test_inflation_finds_the_autocorrelation(rng: np.random.Generator) -> None:
    """Noise with correlation 0.9, of which averages have more variance than those of white noise: by a factor of 7 at
    the filter's own memory of 6 updates, by 19 at any longer one. The filter follows noise that is slower than its
    memory, and sees less of it in its innovations: it finds about 4, between white noise's 1 and these 7. Intervals are
    honest up to the square root of what is missing, 1.3, and wrong by 2.6 without the factor.
    """
    scores, state = simulate(rng, 4000, 0.9, inflate=True)
    assert 2 < float(inflation(state.health)) < 9
    z = scores[500:, 0] / scores[500:, 1]
    assert np.mean(z**2) < 1.3**2 * 1.6  # some 200 independent errors: 5 standard errors of their mean square are 0.5
    plain, _ = simulate(rng, 1500, 0.9, inflate=False)
    assert np.mean((plain[300:, 0] / plain[300:, 1]) ** 2) > 3
    assert np.mean(np.abs(z) < 1.96) > np.mean(np.abs(plain[300:, 0]) < 1.96 * plain[300:, 1]) + 0.1


def test_covariance_stays_positive_when_measurements_are_precise(rng: np.random.Generator) -> None:
    state = random_state(rng)
    for _ in range(50):
        state = predict(state, estimate(rng.normal(size=M), np.full(M, 1e-12)), bias_variance=1e-12)
        state = anchor(state, tf.constant(0.0, tf.float64))
        state = update(state, estimate(rng.normal(size=M - 1), np.full(M - 1, 1e-10)), RATES, factor=1.0)
    eigenvalues = np.linalg.eigvalsh(np.asarray(state.cov))
    assert eigenvalues.min() > -1e-12
    np.testing.assert_array_equal(state.cov, tf.transpose(state.cov))


def test_a_new_temperature_is_settled_by_bridges(rng: np.random.Generator) -> None:
    zeta = np.array([4.0, 2.5, 1.0, 0.5, 0.0])
    state = anchor(in_graph(zeta, variance=1e-4), tf.constant(0.0, tf.float64))
    grown = tensors(insert_level(state, 1, 9.0, 100.0))
    assert grown.mean.shape == [M + 2]
    np.testing.assert_array_equal(np.delete(grown.mean, 2), state.mean)
    differences = np.array([-1.5, -0.7, -0.8, -0.5, -0.5])  # the new one lies at 1.8
    rates = tf.fill([M], tf.constant(0.5, tf.float64))
    for _ in range(20):
        grown = update(grown, estimate(differences, np.full(M, 1e-3)), rates, factor=1.0)
    np.testing.assert_allclose(grown.mean[:-1], [4.0, 2.5, 1.8, 1.0, 0.5, 0.0], atol=0.01)


def test_flags_name_what_is_wrong() -> None:
    state = in_graph(np.zeros(M), variance=0.01)
    bias = tf.constant(0.0, tf.float64)
    assert flag_names(int(health_flags(state, bias))) == []
    health = state.health
    slow = state._replace(health=health._replace(swap_rate=tf.constant([0.5, 0.2, 0.5, 0.5], tf.float64)))
    assert flag_names(int(health_flags(slow, bias))) == ["swap_rate"]
    few = state._replace(health=health._replace(ess=tf.constant(2.0, tf.float64), nis=tf.constant(2.0, tf.float64)))
    assert flag_names(int(health_flags(few, bias))) == ["ess", "nis"]
    behind = tf.constant(-1.0, tf.float64)  # inflation starts at 10
    assert flag_names(int(health_flags(state, behind))) == ["lag"]
    assert float(lag(state, tf.constant(-1.0, tf.float64))) == pytest.approx(10.0)
    vague = in_graph(np.zeros(M), variance=4.0)
    assert flag_names(int(health_flags(vague, bias))) == ["std"]


@pytest.mark.parametrize("part", ["mean", "cov"])
def test_what_is_not_finite_is_never_healthy(part: str) -> None:
    state, bias = in_graph(np.zeros(M), variance=0.01), tf.constant(0.0, tf.float64)
    broken = state._replace(**{part: getattr(state, part) * np.nan})
    assert "not_finite" in flag_names(int(health_flags(broken, bias)))
    health = state.health._replace(ess=tf.constant(np.nan, tf.float64), nis=tf.constant(np.nan, tf.float64))
    assert flag_names(int(health_flags(state._replace(health=health), bias))) == ["ess", "nis"]
    assert flag_names(int(health_flags(state, tf.constant(np.nan, tf.float64)))) == ["lag", "not_finite"]


def test_names_of_flags_have_one_bit_each() -> None:
    assert flag_names(0) == []
    assert flag_names(sum(FLAGS.values())) == list(FLAGS)
    assert flag_names(32) == []  # `trails` of runs before


@pytest.mark.parametrize(("std", "lag_nats", "expected"), [(0.1, 0.19, 0.196), (0.1, 0.3, 0.3), (0.3, -0.61, 0.61)])
def test_the_interval_is_widened_by_the_lag(std: float, lag_nats: float, expected: float) -> None:
    state = in_graph(np.zeros(M), variance=std**2)
    bias = tf.constant(lag_nats / 10, tf.float64)  # inflation starts at 10
    assert float(half_width(state, bias)) == pytest.approx(expected)
    assert flag_names(int(health_flags(state, bias))) == []


def test_errors_of_a_tracked_log_z() -> None:
    found = tracking_errors([0.0, 3.0, -4.0, 0.0], [1.0, 1.0, 3.0, 0.1], [0, 0, 1, 8], [2.0, 3.5, 5.9, 0.2])
    assert found == {
        "num_exact": 4,
        "rmse_nats": 2.5,
        "max_nats": 4.0,
        "bias_nats": -0.25,
        "coverage_95": 0.75,
        "coverage_95_with_lag": 1.0,
        "flagged": 0.5,
        "flagged_of_wrong": 0.5,
        "num_wrong": 2,
    }
    assert tracking_errors([0.5], [1.0], [0])["flagged_of_wrong"] is None
    assert tracking_errors([2.5], [1.0], [0])["coverage_95_with_lag"] == 0.0


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0])
def test_bridges_and_weights_of_arrays_are_those_of_tensors(spread: float, rng: np.random.Generator) -> None:
    d_upper, d_lower = spread * rng.normal(size=(2, M - 1, C)) - 1
    log_s = rng.normal(size=M - 1)
    for iterations in (0, 3):
        ours = bridge(d_upper, d_lower, log_s, iterations)
        graph = bridge(tf.constant(d_upper), tf.constant(d_lower), tf.constant(log_s), iterations)
        for one, other in zip(ours, graph, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
    far = np.r_[d_upper, np.full((1, C), 800.0), np.r_[np.full(C - 1, -np.inf), 0.0][None]]
    for one, other in zip(log_mean_exp(far), log_mean_exp(tf.constant(far)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("sigma_z", [np.inf, 0.7])
def test_the_filter_of_arrays_is_that_of_a_graph(sigma_z: float, rng: np.random.Generator) -> None:
    ours = initial_filter(rng.normal(size=M), expected_ess=4.0)
    graph = tensors(ours)

    def step(
        state: FilterState, change: Estimate, last: Tensor, bridges: Estimate, rates: Tensor, bias: Tensor
    ) -> tuple[FilterState, tuple[Tensor, Tensor, Tensor]]:
        factor = inflation(state.health)
        state = predict(state, change, bias_variance=0.01, sigma_z=sigma_z, factor=factor)
        state = update(anchor(state, last), bridges, rates)
        return state, (lag(state, bias), half_width(state, bias), health_flags(state, bias))

    of_graph = tf.function(step, autograph=False)
    for _ in range(40):
        change = Estimate(rng.normal(size=M), rng.uniform(1e-4, 0.1, M), np.full(M, 5.0))
        bridges = Estimate(rng.normal(size=M - 1), rng.uniform(1e-4, 1, M - 1), rng.uniform(1, 9, M - 1))
        last, bias = rng.normal(size=2)
        given = change, last, bridges, rng.uniform(size=M - 1), bias
        ours, said = step(ours, *given)
        graph, said_in_graph = of_graph(graph, *tensors(given))
        pairs = zip(tf.nest.flatten((ours, said)), tf.nest.flatten((graph, said_in_graph)), strict=True)
        for one, other in pairs:
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=0, atol=TOLERANCE)

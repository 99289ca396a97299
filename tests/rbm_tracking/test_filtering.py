"""rbm_tracking.track.filtering: the numbers of the filter in a graph, to rounding."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.track import bridge as graph_bridge
from rbm_tracking.track import filtering, importance, tracker

M, C = 6, 9
TOLERANCE = 1e-10  # of numbers of order 1 to 100, 40 updates long


def as_graph(estimate: filtering.Estimate) -> importance.Estimate:
    return importance.Estimate(*map(tf.constant, estimate))


def assert_same(one: filtering.FilterState, other: tracker.TrackerState) -> None:
    np.testing.assert_allclose(one.mean, other.mean, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(one.cov, other.cov, rtol=0, atol=TOLERANCE)
    for ours, theirs in zip(one.health, other.health, strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0])
def test_bridges_and_weights_are_those_of_the_graph(spread: float, rng: np.random.Generator) -> None:
    d_upper, d_lower = spread * rng.normal(size=(2, M - 1, C)) - 1
    log_s = rng.normal(size=M - 1)
    for iterations in (0, 3):
        ours = filtering.bridge(d_upper, d_lower, log_s, iterations)
        graph = graph_bridge.bridge(tf.constant(d_upper), tf.constant(d_lower), tf.constant(log_s), iterations)
        for one, other in zip(ours, graph, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
    far = np.r_[d_upper, np.full((1, C), 800.0), np.r_[np.full(C - 1, -np.inf), 0.0][None]]
    for one, other in zip(filtering.log_mean_exp(far), importance.log_mean_exp(tf.constant(far)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("sigma_z", [np.inf, 0.7])
def test_the_filter_is_that_of_the_graph(sigma_z: float, rng: np.random.Generator) -> None:
    first = rng.normal(size=M)
    ours, graph = filtering.initial_filter(first, expected_ess=4.0), tracker.initial_tracker(first, expected_ess=4.0)

    @tf.function(autograph=False)
    def step(state: Any, change: Any, last: Any, bridges: Any, rates: Any) -> Any:
        factor = tracker.inflation(state.health)
        state = tracker.predict(state, change, bias_variance=0.01, sigma_z=sigma_z, factor=factor)
        return tracker.update(tracker.anchor(state, last), bridges, rates)

    for _ in range(40):
        change = filtering.Estimate(rng.normal(size=M), rng.uniform(1e-4, 0.1, M), np.full(M, 5.0))
        bridges = filtering.Estimate(rng.normal(size=M - 1), rng.uniform(1e-4, 1, M - 1), rng.uniform(1, 9, M - 1))
        rates, last = rng.uniform(size=M - 1), float(rng.normal())
        factor = filtering.inflation(ours.health)
        ours = filtering.predict(ours, change, bias_variance=0.01, sigma_z=sigma_z, factor=factor)
        ours = filtering.update(filtering.anchor(ours, last), bridges, rates)
        graph = step(graph, as_graph(change), tf.constant(last, tf.float64), as_graph(bridges), tf.constant(rates))
        assert_same(ours, graph)
        bias = float(rng.normal())
        assert filtering.lag(ours, bias) == pytest.approx(float(tracker.lag(graph, tf.constant(bias, tf.float64))))
        assert filtering.half_width(ours, bias) == pytest.approx(
            float(tracker.half_width(graph, tf.constant(bias, tf.float64)))
        )
        assert filtering.health_flags(ours, bias) == int(tracker.health_flags(graph, tf.constant(bias, tf.float64)))


def test_what_is_not_finite_is_flagged(rng: np.random.Generator) -> None:
    state = filtering.initial_filter(np.zeros(M), variance=0.01)
    assert filtering.health_flags(state, 0.0) == 0
    assert filtering.health_flags(state._replace(mean=state.mean * np.nan), 0.0) == 64
    assert filtering.health_flags(state, np.nan) == 8 + 64

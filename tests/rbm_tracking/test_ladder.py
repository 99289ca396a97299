"""rbm_tracking.track.ladder: labels, flow, and where the temperatures go."""

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.track.ladder import (
    Ladder,
    adapt,
    flow_fraction,
    initial_ladder,
    observe_flow,
    reference_return_time,
    spawn_level,
)

BETA = np.array([1.0, 0.7, 0.4, 0.2, 0.0])
LOW = tf.fill([4], 0.5)


def ladder_with(up: list[float], down: list[float], return_time: float = 10.0) -> Ladder:
    return initial_ladder(BETA, 2, tf.float64)._replace(
        up=tf.constant(up, tf.float64), down=tf.constant(down, tf.float64), return_time=tf.constant(return_time)
    )


def test_particles_are_labelled_at_the_ends() -> None:
    ladder = initial_ladder(BETA, 1, tf.float64)
    path = [2, 1, 0, 1, 2, 3, 4, 3, 2, 1, 0, 1]
    labels, ages = [], []
    for level in path:
        ladder = observe_flow(ladder, tf.constant([[level], [2], [2], [2], [2]]))
        labels.append(int(ladder.label[0, 0]))
        ages.append(int(ladder.age[0, 0]))
    assert labels == [0, 0, 1, 1, 1, 1, -1, -1, -1, -1, 1, 1]
    assert ages == [*range(1, 11), 0, 1]  # only a visit to beta = 1 from beta = 0 ends a round trip
    assert not np.any(ladder.label[1:])


observe = tf.function(observe_flow, autograph=False)


def test_return_time_goes_to_the_length_of_round_trips() -> None:
    ladder = initial_ladder(BETA, 1, tf.float64)
    for t in range(1200):
        position = t % 8
        level = position if position <= 4 else 8 - position
        ladder = observe(ladder, tf.constant([[level], [1], [1], [1], [1]]))
    assert float(ladder.return_time) == pytest.approx(8.0, rel=0.01)  # 150 trips of weight 1/20


def test_counts_forget() -> None:
    ladder = initial_ladder(BETA, 2, tf.float64)._replace(
        label=tf.constant([[1, 1], [1, 1], [-1, 1], [-1, -1], [-1, -1]])
    )
    level = tf.constant([[0, 0], [1, 1], [2, 2], [3, 3], [4, 4]])
    for _ in range(800):  # the rate is 1 / 100 here
        ladder = observe(ladder, level)
    np.testing.assert_allclose(ladder.up, [2, 2, 1, 0, 0], atol=2e-3)
    np.testing.assert_allclose(ladder.down, [0, 0, 1, 2, 2], atol=2e-3)
    np.testing.assert_allclose(flow_fraction(ladder), [1, 0.875, 0.5, 0.125, 0], atol=2e-3)


def test_flow_is_made_to_fall() -> None:
    f = flow_fraction(ladder_with([1, 1, 0, 1, 0], [0, 0, 1, 0, 1]))
    np.testing.assert_allclose(f, [1, 0.75, 0.5, 0.5, 0])
    rising = flow_fraction(ladder_with([1, 0, 0, 1, 0], [0, 1, 1, 0, 1]))  # averages 1, 0.25, 0.25, 0.5, 0
    np.testing.assert_allclose(rising, [1, 0.375, 0.375, 0.375, 0])


def test_even_flow_leaves_the_ladder_alone() -> None:
    even = np.linspace(1, 0, 5)
    moved = adapt(ladder_with(list(even), list(1 - even)), LOW, 1.0)
    np.testing.assert_allclose(moved.beta, BETA, atol=1e-12)


def test_temperatures_go_to_where_flow_falls() -> None:
    """f falls between the third and fourth level only: the inner temperatures gather between them."""
    moved = adapt(ladder_with([1, 1, 1, 0, 0], [0, 0, 0, 1, 1]), LOW, 1.0)
    beta = moved.beta.numpy()
    assert np.all(np.diff(beta) < 0)
    assert beta[0] == 1.0
    assert beta[-1] == 0.0
    assert np.all((beta[1:-1] > 0.15) & (beta[1:-1] < 0.45))
    half = adapt(ladder_with([1, 1, 1, 0, 0], [0, 0, 0, 1, 1]), LOW, 0.5)
    np.testing.assert_allclose(half.beta, 0.5 * (BETA + beta), atol=1e-12)


def test_ladder_rests_while_all_swaps_are_accepted() -> None:
    ladder = ladder_with([1, 1, 1, 0, 0], [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(adapt(ladder, tf.fill([4], 0.95), 1.0).beta, BETA)


def test_float32_keeps_the_ends_exactly() -> None:
    ladder = initial_ladder(BETA, 2)._replace(up=tf.constant([1.0, 0.9, 0.6, 0.1, 0.0]))
    move = tf.function(adapt, autograph=False)
    for _ in range(300):
        ladder = move(ladder, LOW, tf.constant(0.03))
    assert float(ladder.beta[0]) == 1.0
    assert float(ladder.beta[-1]) == 0.0
    assert np.all(np.diff(ladder.beta) < 0)


def test_spawning_is_asked_for_by_rare_swaps_or_long_trips() -> None:
    up, down = [1.0, 0.9, 0.3, 0.2, 0.0], [0.0, 0.1, 0.7, 0.8, 1.0]
    assert spawn_level(ladder_with(up, down), [0.7] * 4) is None
    assert spawn_level(ladder_with(up, down), [0.3] * 4) == 1  # where f falls most
    longest = reference_return_time([0.7] * 4)
    assert longest == pytest.approx(2 * 5 * 4 / 0.7)
    assert spawn_level(ladder_with(up, down, return_time=longest + 1), [0.7] * 4) == 1

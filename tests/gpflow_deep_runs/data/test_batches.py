import numpy as np
import pytest

from gpflow_deep_base.seeds import Seeds, numpy_rng
from gpflow_deep_runs.data import supply as batches
from gpflow_deep_runs.data.supply import ArrayBatches, Minibatches, batch_indices


@pytest.mark.parametrize(("num_data", "batch_size"), [(10, 3), (10, 5), (7, 6), (11, 1)])
def test_batches_use_each_row_once_in_num_data_draws(num_data: int, batch_size: int) -> None:
    steps = num_data  # batch_size epochs
    made = [batch_indices(3, step, num_data, batch_size) for step in range(steps)]
    assert all(len(batch) == batch_size for batch in made)
    epochs = np.concatenate(made).reshape(-1, num_data)
    np.testing.assert_array_equal(np.sort(epochs), np.tile(np.arange(num_data), (len(epochs), 1)))
    if len(epochs) > 1:
        assert not np.array_equal(epochs[0], epochs[1])


def test_batches_are_a_pure_function_of_seed_and_step() -> None:
    forward = [batch_indices(0, step, 100, 30).copy() for step in range(12)]
    backward = [batch_indices(0, step, 100, 30).copy() for step in reversed(range(12))]
    np.testing.assert_array_equal(forward, backward[::-1])
    assert not np.array_equal(batch_indices(1, 0, 100, 30), forward[0])


def test_batch_of_all_rows_is_in_order() -> None:
    for batch_size in (5, 6, 1000):
        np.testing.assert_array_equal(batch_indices(0, 17, 5, batch_size), np.arange(5))


def test_batch_indices_protects_its_cached_permutation() -> None:
    with pytest.raises(ValueError, match="read-only"):
        batch_indices(0, 0, 100, 30)[0] = 1


def test_a_permutation_is_made_once_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(seed: int, name: str) -> np.random.Generator:
        made.append(name)
        return numpy_rng(seed, name)

    monkeypatch.setattr(batches, "numpy_rng", counted)
    for step in range(250):
        batch_indices(77, step, 1000, 10)
    assert made == ["batches/0", "batches/1", "batches/2"]


@pytest.mark.parametrize(("step", "num_data", "batch_size"), [(-1, 5, 2), (0, 0, 2), (0, 5, 0)])
def test_batch_indices_refuses_bad_arguments(step: int, num_data: int, batch_size: int) -> None:
    with pytest.raises(ValueError, match=f"got {step}, {num_data} and {batch_size}"):
        batch_indices(0, step, num_data, batch_size)


def test_minibatches_of_several_steps() -> None:
    minibatches = Minibatches(100, 30, Seeds(4))
    assert (minibatches.size, minibatches.is_full) == (30, False)
    found = minibatches(5, 3)
    assert found.shape == (3, 30)
    for i in range(3):
        np.testing.assert_array_equal(found[i], batch_indices(4, 5 + i, 100, 30))
    full = Minibatches(100, 1000, Seeds(4))
    assert (full.size, full.is_full) == (100, True)
    np.testing.assert_array_equal(full(7, 2), np.tile(np.arange(100), (2, 1)))


@pytest.mark.parametrize(("num_rows", "batch_size"), [(0, 5), (5, 0)])
def test_minibatches_of_nothing_are_refused(num_rows: int, batch_size: int) -> None:
    with pytest.raises(ValueError, match=f"--batch_size >= 1, got {num_rows} and {batch_size}"):
        Minibatches(num_rows, batch_size, Seeds(0))


def test_batches_of_arrays(rng: np.random.Generator) -> None:
    """The rows of `batch_indices`; each lane has its part of them; all rows at once are made tensors once."""
    X, Y = rng.normal(size=(50, 2)), rng.normal(size=(50, 1))
    rows = batch_indices(3, 7, 50, 8)
    whole = ArrayBatches((X, Y), batch_size=8, seed=3)(7)
    np.testing.assert_array_equal(whole[0], X[rows])
    np.testing.assert_array_equal(whole[1], Y[rows])
    lanes = [ArrayBatches((X, Y), batch_size=4, seed=3, lane=lane, num_lanes=2)(7)[1] for lane in range(2)]
    np.testing.assert_array_equal(np.concatenate(lanes), Y[rows])
    full = ArrayBatches((X, Y), batch_size=60, seed=3)
    assert full(0) is full(1)
    np.testing.assert_array_equal(full(0)[0], X)
    halves = [ArrayBatches((X, Y), batch_size=25, seed=3, lane=lane, num_lanes=2)(1)[0] for lane in range(2)]
    np.testing.assert_array_equal(np.concatenate(halves), X)
    assert full.scalars() == {}


def test_batches_of_arrays_refuse(rng: np.random.Generator) -> None:
    X = rng.normal(size=(50, 2))
    with pytest.raises(ValueError, match="a batch of 2 lanes must have at most the 50 rows there are, got 60"):
        ArrayBatches((X,), batch_size=30, seed=0, num_lanes=2)
    with pytest.raises(ValueError, match="batch_size >= 1 and a lane from 0 to num_lanes - 1, got 5 and lane 2 of 2"):
        ArrayBatches((X,), batch_size=5, seed=0, lane=2, num_lanes=2)

"""Mixtures against enumeration, and their files."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from darn.model.model import DARN, DARNConfig
from darn.more.chain import Chain
from darn.more.mixture import Density, Mixture, load_density, member_log_prob, save_density
from darn.more.ordered import Category
from gpflow_deep_base.storage.container import load_container, save_container
from tests.darn.rows import every_row

N = 6


def chain(seed: int = 0) -> Chain:
    rng = np.random.default_rng(seed)
    order = rng.permutation(N)
    place = np.argsort(order)
    W = rng.normal(size=(N, N)) * (place[:, None] < place[None, :])
    return Chain(order.astype(np.int32), rng.normal(size=N), scipy.sparse.csc_matrix(W), (Category((0, 3), False),))


def model() -> DARN:
    return DARN(DARNConfig(N, (3,), (4,), dtype="float64"), seed=5, data=every_row(N))


def mixture() -> Mixture:
    return Mixture((chain(), model(), chain(1)), np.log([0.2, 0.5, 0.3]))


def test_it_is_the_mean_of_its_members() -> None:
    both = mixture()
    rows = every_row(N)
    p = np.exp(both.log_prob(rows))
    each = [np.exp(member_log_prob(member, rows)) for member in both.members]
    np.testing.assert_allclose(p, 0.2 * each[0] + 0.5 * each[1] + 0.3 * each[2], atol=1e-12)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)


def test_samples_have_the_frequencies_of_the_density() -> None:
    """A frequency is beyond five standard errors in 6e-7 of all cases; 64 rows are looked at."""
    both, rows = mixture(), every_row(N)
    drawn = both.sample(50_000, seed=1)
    p = np.exp(both.log_prob(rows))
    counts = np.bincount(drawn @ (1 << np.arange(N)[::-1]), minlength=len(rows))
    assert np.all(np.abs(counts / 5e4 - p) <= 5.0 * np.sqrt(p / 5e4) + 1e-4)
    np.testing.assert_array_equal(both.sample(20, seed=1), both.sample(20, seed=1))
    assert not np.array_equal(both.sample(20, seed=1), both.sample(20, seed=2))


def test_missing_bits_given_the_known_ones() -> None:
    both, rows = mixture(), every_row(N)
    x = both.sample(10, seed=2)
    mask = np.random.default_rng(3).uniform(size=x.shape) < 0.5
    found = both.complete(x, mask)
    for i, row in enumerate(x):
        fitting = rows[(rows == row)[:, ~mask[i]].all(axis=1)]
        p = np.exp(both.log_prob(fitting))
        np.testing.assert_allclose(found.probabilities[i], p @ fitting / p.sum(), atol=1e-10)
        assert found.log_known[i] == pytest.approx(np.log(p.sum()), abs=1e-10)


@pytest.mark.parametrize("density", [chain(), model(), mixture()], ids=["chain", "darn", "mixture"])
def test_a_restored_density_is_the_same(density: Density, tmp_path: Path) -> None:
    path = tmp_path / "new" / "density.npz"
    save_density(density, path)
    restored = load_density(path)
    assert type(restored) is type(density)
    assert [p.name for p in path.parent.iterdir()] == ["density.npz"]
    rows = every_row(N)
    before, after = (
        each.log_prob(rows) if isinstance(each, Mixture) else member_log_prob(each, rows)
        for each in (density, restored)
    )
    np.testing.assert_array_equal(before, after)


def test_weights_that_are_zero_are_not_in_the_file(tmp_path: Path) -> None:
    """A thousand columns with one weight each: 8,000 numbers and not a million."""
    n = 1000
    W = scipy.sparse.csc_matrix((np.ones(n - 1), (np.arange(n - 1), np.arange(1, n))), shape=(n, n))
    sparse = Chain(np.arange(n, dtype=np.int32), np.zeros(n), W)
    save_density(sparse, tmp_path / "chain.npz")
    assert (tmp_path / "chain.npz").stat().st_size < 50_000


def test_members_and_weights_make_a_density() -> None:
    for members, weights in (((), []), ((chain(), chain()), [1.0]), ((chain(), chain()), [0.5]), ((chain(),), [0.5])):
        with pytest.raises(ValueError, match="of a mixture must"):
            Mixture(members, np.log(weights))
    for wrong in (np.zeros([1, N], bool), np.zeros([3, N], int)):
        with pytest.raises(ValueError, match="is_missing must be booleans of the shape of x"):
            mixture().complete(np.zeros([3, N]), wrong)


def test_files_that_make_no_density_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "density.npz"
    save_density(mixture(), path)
    header, arrays = load_container(path, kind="a saved density of bits", versions=(1,))[1:]

    n_weights = len(arrays["0/weights"])
    for name, value, reason in (
        ("0/order", np.zeros(N, np.int32), "order must have each column once"),
        ("0/order", arrays["0/order"][::-1].copy(), "before the column"),
        ("0/bias", np.full(N, np.nan), "must be finite"),
        ("0/bias", np.zeros(N, np.float32), "must be of float64"),
        ("0/rows", np.full(n_weights, N, np.int32), "before the column"),
        ("0/starts", arrays["0/starts"][::-1].copy(), "starts must grow"),
        ("0/bias", np.zeros(N + 1), r"must have the shape \[6\]"),
        ("log_weights", np.zeros(3), "sum to 1"),
    ):
        wrong = {**arrays, name: value}
        save_container(tmp_path / "wrong.npz", kind="a saved density of bits", version=1, header=header, arrays=wrong)
        with pytest.raises(ValueError, match=reason):
            load_density(tmp_path / "wrong.npz")
    with zipfile.ZipFile(path) as archive:
        assert "0/weights.npy" in archive.namelist()
    with pytest.raises(ValueError, match="it is another"):
        save_container(path, kind="another", version=1, header={}, arrays={})
        load_density(path)
    diverged = chain()
    diverged.bias[0] = np.inf
    with pytest.raises(ValueError, match="0/bias must be finite"):
        save_density(diverged, path)


@pytest.mark.parametrize(
    "changed",
    [
        {"members": []},
        {"is_mixture": 1},
        {"members": [{"chain": {"columns": 10**9, "weights": 0, "categories": []}}]},
        {"members": [{"chain": {"columns": N, "weights": -1, "categories": []}}]},
        {"members": [{"config": {"visible": "many"}}]},
        {"other": 1},
    ],
)
def test_headers_that_make_no_density_are_refused(changed: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "density.npz"
    save_density(chain(), path)
    header, arrays = load_container(path, kind="a saved density of bits", versions=(1,))[1:]
    save_container(path, kind="a saved density of bits", version=1, header={**header, **changed}, arrays=arrays)
    with pytest.raises(ValueError, match="density"):
        load_density(path)


@pytest.mark.parametrize("categories", [5, [5], [{"columns": [0]}], [{"columns": [0, 9], "is_always": True}], [{}]])
def test_categories_that_make_no_sense_are_refused(categories: object, tmp_path: Path) -> None:
    path = tmp_path / "density.npz"
    save_density(chain(), path)
    header, arrays = load_container(path, kind="a saved density of bits", versions=(1,))[1:]
    header["members"][0]["chain"]["categories"] = categories
    save_container(path, kind="a saved density of bits", version=1, header=header, arrays=arrays)
    with pytest.raises(ValueError, match="categor"):
        load_density(path)

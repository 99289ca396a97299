"""`ebp.packed.packed` and `ebp.packed.export` against float products of the same weights, for every engine, and
against networks."""

import copy
import importlib.util
import itertools
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits

import ebp
from ebp.network.coding import is_sparse
from ebp.packed.export import Exported, Weights, export_checked, export_network, export_packed, packed
from ebp.packed.packed import PackedNetwork
from ebp.packed.signs import Layer, sign_products, units

ENGINES = [
    "numpy",
    pytest.param("numba", marks=pytest.mark.skipif(not importlib.util.find_spec("numba"), reason="no numba")),
]
SHAPES = [(1, 1), (7, 3, 1), (64, 64, 2), (65, 33, 10), (100, 31, 32, 3), (784, 500, 10), (250, 257, 129, 1)]


def random_network(rng: np.random.Generator, sizes: tuple[int, ...], dtype: type = np.float32) -> Weights:
    """Integer biases now and then, so that sums of exactly 0 occur."""
    signs = [rng.choice([-1, 1], size=shape).astype(np.int8) for shape in itertools.pairwise(sizes)]
    biases: list[Any] = []
    for n in sizes[1:]:
        biases.append(np.where(rng.random(n) < 0.5, rng.integers(-3, 4, n), rng.normal(size=n)).astype(dtype))
    return Weights(signs, biases)


def float_network(X: np.ndarray, network: Weights, dtype: type = np.float32) -> np.ndarray:
    """The last layer's input (times the root of the fan-in) in plain floats, sign(0) = +1."""
    v: Any = X.astype(dtype)
    for w, b in zip(network.signs[:-1], network.biases[:-1], strict=True):
        v = np.where(v @ w.astype(dtype) + np.asarray(b) >= 0, dtype(1), dtype(-1))
    return v @ network.signs[-1].astype(dtype)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sizes", SHAPES, ids=str)
@pytest.mark.parametrize("num_rows", [0, 1, 2, 9, 131])
def test_signs_in(sizes: tuple[int, ...], num_rows: int, engine: str, tmp_path: Path, rng: np.random.Generator) -> None:
    network = random_network(rng, sizes)
    export_packed(network, tmp_path / "net")
    packed = PackedNetwork.load(tmp_path / "net", engine)
    assert packed.layer_sizes == sizes
    X = rng.choice([-1.0, 1.0], size=(num_rows, sizes[0]))
    expected = float_network(X, network)
    np.testing.assert_array_equal(packed.integers(X), expected)
    np.testing.assert_array_equal(packed.integers(X.astype(np.int8)), expected)
    scores = expected.astype(np.float64) + np.asarray(network.biases[-1])
    assert packed.scores(X).dtype == np.float64
    np.testing.assert_array_equal(packed.scores(X), scores)
    label = np.argmax(scores, axis=1) if sizes[-1] > 1 else np.where(scores[:, 0] >= 0, 1, -1)
    np.testing.assert_array_equal(packed.predict(X), label)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("low", "high", "fraction_bits"), [(0, 256, 0), (-128, 128, 7), (-3, 4, 2), (0, 2, 0)])
def test_fixed_point_in(
    low: int, high: int, fraction_bits: int, engine: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    network = random_network(rng, (123, 70, 4))
    export_packed(network, tmp_path / "net", fraction_bits=fraction_bits)
    packed = PackedNetwork.load(tmp_path / "net", engine)
    X = rng.integers(low, high, size=(57, 123)) / 2.0**fraction_bits
    expected = float_network(X, network)
    np.testing.assert_array_equal(packed.integers(X), expected)
    np.testing.assert_array_equal(packed.integers(X.astype(np.float32)), expected)


def test_sparse_in(tmp_path: Path, rng: np.random.Generator) -> None:
    """Also with blocks of few columns, as for 10^5 features."""
    network = random_network(rng, (3000, 120, 1))
    export_packed(network, tmp_path / "net", fraction_bits=0)
    packed = PackedNetwork.load(tmp_path / "net")
    X = scipy.sparse.random(40, 3000, density=0.02, format="csr", random_state=rng)
    X.data = rng.integers(1, 9, size=X.nnz).astype(np.float64)
    np.testing.assert_array_equal(packed.integers(X), float_network(X.toarray(), network))
    np.testing.assert_array_equal(packed.integers(X), packed.integers(X.toarray()))
    empty = scipy.sparse.csr_matrix((2, 3000))
    np.testing.assert_array_equal(packed.integers(empty), packed.integers(np.zeros((2, 3000))))


def test_large_integers_are_summed_in_float64(tmp_path: Path, rng: np.random.Generator) -> None:
    network = random_network(rng, (101, 9, 1))
    export_packed(network, tmp_path / "net", fraction_bits=0)
    X = rng.integers(-(2**23), 2**23, size=(300, 101))
    np.testing.assert_array_equal(
        PackedNetwork.load(tmp_path / "net").integers(X), float_network(X, network, np.float64)
    )


def test_one_layer_of_fractions(tmp_path: Path, rng: np.random.Generator) -> None:
    network = random_network(rng, (40, 3), np.float64)
    export_packed(network, tmp_path / "net", fraction_bits=3)
    packed = PackedNetwork.load(tmp_path / "net")
    X = rng.integers(-20, 20, size=(30, 40)) / 8
    np.testing.assert_array_equal(packed.integers(X), 8 * float_network(X, network, np.float64))
    np.testing.assert_array_equal(packed.scores(X), packed.integers(X) / 8 + np.asarray(network.biases[0]))


@pytest.mark.parametrize("bias", [0.0, -0.0, 1e-30, -1e-30, 0.5, 4.0, -4.0, 4.0000005, 1e30, -1e30])
def test_thresholds_at_ties(bias: float, tmp_path: Path) -> None:
    """sign(s + b) for every sum s that 9 inputs can have, with sign(0) = +1."""
    b = np.float32(bias)
    signs = np.ones((9, 1), np.int8)
    export_packed(
        Weights([signs, np.ones((1, 1), np.int8)], [np.array([b]), np.zeros(1, np.float32)]), tmp_path / "net"
    )
    X = np.where(np.arange(9) < np.arange(10)[:, None], 1, -1)
    expected = np.where(X.sum(axis=1).astype(np.float32) + b >= 0, 1, -1)
    np.testing.assert_array_equal(PackedNetwork.load(tmp_path / "net").integers(X)[:, 0], expected)


def test_no_biases(tmp_path: Path, rng: np.random.Generator) -> None:
    network = random_network(rng, (50, 20, 1))
    export_packed(Weights(network.signs, [None, None]), tmp_path / "none")
    export_packed(Weights(network.signs, [np.zeros(20, np.float32), np.zeros(1, np.float32)]), tmp_path / "zero")
    assert (tmp_path / "none").read_bytes() == (tmp_path / "zero").read_bytes()


@pytest.mark.parametrize("num_outputs", [1, 4])
def test_vote(num_outputs: int, tmp_path: Path, rng: np.random.Generator) -> None:
    networks = [random_network(rng, (30, 21, num_outputs)) for _ in range(5)]
    export_packed(networks, tmp_path / "net")
    packed = PackedNetwork.load(tmp_path / "net")
    X = rng.choice([-1, 1], size=(40, 30))
    outputs = np.stack([float_network(X, network) + np.asarray(network.biases[-1]) for network in networks])
    if num_outputs == 1:
        votes = np.where(outputs >= 0, 1, -1).mean(axis=0)
        label = np.where(votes[:, 0] >= 0, 1, -1)
    else:
        votes = (2 * np.eye(num_outputs)[outputs.argmax(axis=2)] - 1).mean(axis=0)
        label = votes.argmax(axis=1)
    assert packed.num_networks == 5
    np.testing.assert_allclose(packed.vote(X), votes, rtol=0, atol=1e-15)  # sums of at most 5 small integers
    np.testing.assert_array_equal(packed.predict(X), label)
    np.testing.assert_array_equal(packed.integers(X, 3), float_network(X, networks[3]))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("num_words", [1, 3, 64])
def test_products_of_signs(num_words: int, engine: str, rng: np.random.Generator) -> None:
    """All bits different; one row and many; by bits and by floats."""
    K = 64 * num_words
    for num_rows in (1, 8, 200):
        x = rng.integers(0, 256, size=(num_rows, 8 * num_words), dtype=np.uint8)
        w = rng.integers(0, 256, size=(45, 8 * num_words), dtype=np.uint8)
        w[7] = ~x[0]
        expected = K - 2 * np.unpackbits(x[:, None] ^ w, axis=2).sum(axis=2, dtype=np.int64)
        assert expected[0, 7] == -K
        for with_floats in (False, True):
            found = sign_products(x, Layer(K, w, np.zeros(45)), engine=engine, with_floats=with_floats)
            np.testing.assert_array_equal(found, expected)


def test_products_of_large_layers_by_numpy(rng: np.random.Generator) -> None:
    """Of many weights NumPy counts bits for few rows."""
    x, w = (rng.integers(0, 256, size=(n, 128), dtype=np.uint8) for n in (3, 1100))
    expected = 1024 - 2 * np.unpackbits(x[:, None] ^ w, axis=2).sum(axis=2, dtype=np.int64)
    np.testing.assert_array_equal(sign_products(x, Layer(1024, w, np.zeros(1100)), with_floats=True), expected)


def test_size_of_the_file(tmp_path: Path, rng: np.random.Generator) -> None:
    """About 30 times smaller than float32: the thresholds, padding and header are the rest of 32."""
    network = random_network(rng, (784, 500, 10))
    size = export_packed(network, tmp_path / "net")
    assert size == (tmp_path / "net").stat().st_size == PackedNetwork.load(tmp_path / "net").num_bytes
    floats = 4 * sum(w.size + w.shape[1] for w in network.signs)
    assert floats / size > 29.5


@pytest.fixture
def file(tmp_path: Path, rng: np.random.Generator) -> Path:
    export_packed(random_network(rng, (30, 20, 1)), tmp_path / "net")
    return tmp_path / "net"


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (Weights([np.array([[1], [0]])], [None]), "must be -1 or \\+1, got others such as 0; only networks of binary"),
        (Weights([np.ones((3, 2)), np.ones((3, 1))], [None, None]), "layer 1 of network 0 must be \\[n_in, n_out\\]"),
        (Weights([np.ones((3, 2))], [np.array([0.0, np.nan])]), "must be 2 finite numbers"),
        (Weights([np.ones((3, 2))], [np.zeros(3)]), "must be 2 finite numbers, got \\[3\\]"),
        (Weights([np.ones((3, 2))], []), "as many biases as layers, got 1 and 0"),
        (Weights([], []), "at least one layer"),
    ],
)
def test_bad_weights(weights: Weights, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        export_packed(weights, tmp_path / "net")
    assert not list(tmp_path.iterdir())


def test_bad_calls(file: Path, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="at least one network"):
        export_packed([], file)
    for bits in (-1, "8"):
        with pytest.raises(ValueError, match=f"fraction_bits must be None or from 0 to 24, got {bits!r}"):
            export_packed(random_network(rng, (3, 1)), file, fraction_bits=bits)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="network 1 has others"):
        export_packed([random_network(rng, (3, 1)), random_network(rng, (4, 1))], file)
    with pytest.raises(ValueError, match="engine must be 'auto', 'numba' or 'numpy', got 'c'"):
        PackedNetwork.load(file, "c")
    with pytest.raises(ValueError, match="biases of layer 0 of network 0 must be 2 finite"):
        export_packed(Weights([np.ones((3, 2))], [np.zeros(3)]), file)
    packed = PackedNetwork.load(file)
    with pytest.raises(ValueError, match="must all be -1 or \\+1"):
        packed.integers(np.zeros((2, 30)))
    with pytest.raises(ValueError, match=r"numbers \[N, 30\], got shape \[2, 29\]"):
        packed.integers(np.ones((2, 29)))
    with pytest.raises(ValueError, match="network must be from 0 to 0, got 1"):
        packed.integers(np.ones((2, 30)), 1)
    with pytest.raises(ValueError, match="cannot be sparse"):
        packed.integers(scipy.sparse.csr_matrix(np.ones((2, 30))))
    export_packed(random_network(rng, (3, 1)), file, fraction_bits=1)
    packed = PackedNetwork.load(file)
    for bad in (0.25, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"multiples of 2\^-1|less than 2\^31"):
            packed.integers(np.full((1, 3), bad))
    with pytest.raises(ValueError, match="less than 2\\^31 units"):
        packed.integers(np.full((1, 3), 2.0**30))


def test_without_numba(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebp.packed.packed.HAS_NUMBA", False)
    assert PackedNetwork.load(file).engine == "numpy"
    with pytest.raises(ValueError, match="needs the package numba; `pip install numba`"):
        PackedNetwork.load(file, "numba")


@pytest.mark.parametrize("sizes", [(20, 30, 1), (20, 15, 10, 3), (20, 4)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_trained_network(sizes: tuple[int, ...], dtype: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """The most probable network and a vote, against `EBPNetwork`, for every row and every bit."""
    X = rng.integers(-40, 40, size=(120, 20)) / 16
    if sizes[-1] == 1:
        Y = np.where(X[:, :1] > 0, 1.0, -1.0)
    else:
        Y = 2 * np.eye(sizes[-1])[np.digitize(X[:, 0], [-1, 0, 1][: sizes[-1] - 1])] - 1
    network = ebp.EBPNetwork(sizes, "binary", head="binary" if sizes[-1] == 1 else "multiclass", seed=1, dtype=dtype)
    ebp.fit(network, X, Y, epochs=1, batch_size=10)
    new = rng.integers(-40, 40, size=(500, 20)) / 16
    export_network(network, tmp_path / "mode", fraction_bits=4)
    packed = PackedNetwork.load(tmp_path / "mode")
    scale = np.sqrt(network.architecture.fan_ins[-1])
    np.testing.assert_array_equal(packed.scores(new) / scale, network.deterministic_scores(new))
    np.testing.assert_array_equal(packed.predict(new), network.predict_deterministic(new))
    export_network(network, tmp_path / "votes", fraction_bits=4, num_votes=5, seed=3)
    voting = PackedNetwork.load(tmp_path / "votes")
    np.testing.assert_array_equal(voting.vote(new), network.vote(new, 5, seed=3))
    assert len({voting.integers(new, i).tobytes() for i in range(5)}) == 5


def test_other_weights_cannot_be_packed(tmp_path: Path) -> None:
    for prior in ("real", ebp.TernaryWeights(nu=2.0)):
        network = ebp.EBPNetwork((4, 3, 1), [prior, "binary"])
        with pytest.raises(ValueError, match="only networks of binary weights can be packed"):
            export_network(network, tmp_path / "net")
    network = ebp.EBPNetwork((4, 3, 1))
    for votes in (-1, 1.5):
        with pytest.raises(ValueError, match=f"num_votes must be a whole number of at least 0, got {votes}"):
            export_network(network, tmp_path / "net", num_votes=votes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="network must be one for classes, got one with the head RegressionHead"):
        export_network(ebp.EBPNetwork((4, 1), head="regression"), tmp_path / "net")
    models: list[Any] = [ebp.EBPClassifier(), ebp.EBPRegressor(), ebp.EBPGaussianClassifier()]
    for model in models:
        with pytest.raises(ValueError, match="network must be an EBPNetwork or a fitted EBPClassifier, got EBP"):
            export_network(model, tmp_path / "net")
    assert not list(tmp_path.iterdir())


#: Networks that have learned nothing lose much.
UNLEARNED = pytest.mark.filterwarnings("ignore:the file has:UserWarning")


@UNLEARNED
@pytest.mark.parametrize("num_votes", [0, 3])
def test_checked_export(num_votes: int, tmp_path: Path, rng: np.random.Generator) -> None:
    network = ebp.EBPNetwork((7, 5, 1), seed=2)
    X = rng.integers(-8, 8, size=(40, 7)) / 4
    path = tmp_path / "new" / "net"
    exported = export_checked(network, path, X, fraction_bits=2, num_votes=num_votes, seed=4)
    packed = PackedNetwork.load(path)
    assert exported.num_bytes == packed.num_bytes == path.stat().st_size
    assert (exported.num_rows, exported.float_bytes) == (40, 4 * max(1, num_votes) * (35 + 5 + 5 + 1))
    assert exported.num_votes == num_votes
    assert exported.agreement == np.mean(packed.predict(X) == network.predict_probabilistic(X))
    expected = network.vote(X, 3, seed=4) if num_votes else network.deterministic_scores(X) * np.sqrt(6)
    np.testing.assert_allclose(packed.vote(X) if num_votes else packed.scores(X), expected, rtol=1e-14)


@pytest.mark.parametrize("num_votes", [0, 3])
def test_an_export_that_differs_gets_no_name(
    num_votes: int, file: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """One row of twenty with another output."""
    before, X = file.read_bytes(), rng.choice([-1.0, 1.0], (20, 7))
    method = "vote" if num_votes else "scores"
    right = getattr(PackedNetwork, method)
    monkeypatch.setattr(
        PackedNetwork, method, lambda *args, **kw: right(*args, **kw) + (np.arange(20) == 13)[:, None] * 1e-12
    )
    with pytest.raises(
        ValueError, match="1 of 20 rows differ: the inputs are too large for exact sums; use dtype=floa"
    ):
        export_checked(ebp.EBPNetwork((7, 5, 1)), file, X, num_votes=num_votes)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


@pytest.fixture(scope="module")
def digits() -> tuple[Any, np.ndarray, np.ndarray]:
    """A classifier of few bits that has learned 700 digits, and the other digits."""
    X, labels = load_digits(return_X_y=True)
    model = ebp.EBPClassifier(12, batch_size=10, epochs=2).fit(X[:700], np.array(list("abcdefghij"))[labels[:700]])
    return model, X[700:], np.array(list("abcdefghij"))[labels[700:]]


def test_what_is_exported_is_judged_by_its_labels(digits: Any, tmp_path: Path) -> None:
    """Each way has the agreement and accuracy of the file; "auto" is the smallest within half a percent of the best."""
    model, X, y = digits
    shares = {}
    for votes in (0, 5, 11):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = export_checked(model, tmp_path / "net", X, y, num_votes=votes)
        labels = PackedNetwork.load(tmp_path / "net").predict(X)
        shares[votes] = exported.agreement
        assert exported.agreement == np.mean(labels == model.predict(X)) < 1.0
        assert exported.accuracy == np.mean(labels == y)
        assert exported.accuracy_of_predict == np.mean(model.predict(X) == y)
        assert f"the label of predict in {100 * exported.agreement:.1f} % of 1097 rows" in exported.summary
        assert f"{100 * float(exported.accuracy or 0):.1f} % right, predict" in exported.summary
    expected = min(votes for votes, share in shares.items() if share >= max(shares.values()) - 0.005)
    with pytest.warns(UserWarning, match="the file has .* % of 1097 rows right, where predict has"):
        exported = export_checked(model, tmp_path / "net", X, y)
    assert exported.num_votes == expected
    assert PackedNetwork.load(tmp_path / "net").num_networks == max(1, expected)
    with pytest.warns(UserWarning, match=r"other labels than predict in .* \(give y to see how many are wrong\)"):
        assert export_checked(model, tmp_path / "net", X[:1000], chosen_by=X).num_votes == expected
    with pytest.raises(ValueError, match=r"y must hold labels as the file gives them, 'a', 'b', 'c', \.\.\., got 3;"):
        export_checked(model, tmp_path / "net", X[:2], [3, 4])
    with pytest.raises(ValueError, match=r"y must hold a label for each of 1097 rows, got shape \[2\]"):
        export_checked(model, tmp_path / "net", X, y[:2])
    with pytest.raises(ValueError, match="at least one row to look at"):
        export_checked(model, tmp_path / "net", X[:0])


@pytest.mark.parametrize("way", ["file", "C"])
def test_every_export_prints_what_it_loses(
    way: str, digits: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, X, y = digits
    export = (
        partial(ebp.export_network, path=tmp_path / "net") if way == "file" else partial(ebp.export_c, inputs="uint8")
    )
    with pytest.warns(UserWarning, match="the file has .* % of 1097 rows right, where predict has"):
        export(model, X=X, y=y)
    right = np.mean(packed(model).predict(X) == y)
    expected = f"; {100 * right:.1f} % right, predict {100 * np.mean(model.predict(X) == y):.1f} %\n"
    assert capsys.readouterr().out.endswith(expected)


@pytest.mark.parametrize("output", ["deterministic", "vote"])
def test_a_classifier_that_predicts_what_is_exported(output: str, digits: Any, tmp_path: Path) -> None:
    model = copy.copy(digits[0]).set_params(output=output, num_votes=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exported = export_checked(model, tmp_path / "net", *digits[1:])
    assert exported.agreement == 1.0
    assert exported.num_votes == (3 if output == "vote" else 0)
    assert "the label of predict in all 1097 rows" in exported.summary


def test_a_loss_is_material_beyond_half_a_percent_and_chance() -> None:
    """Of 1,000 rows 20 more are wrong: 2 %, with a standard error of 0.4 % if only these differ, 3 % if 90 % differ.

    One row of any number is no more than its standard error.
    """
    same = Exported(100, 900, 1000, 0, agreement=0.98, accuracy=0.95, accuracy_of_predict=0.97)
    assert "95.0 % of 1000 rows right, where predict has 97.0 %" in str(same.caution)
    assert same._replace(agreement=0.1).caution is None
    assert same._replace(accuracy=0.966).caution is None
    assert same._replace(num_rows=40, agreement=0.975, accuracy=0.95, accuracy_of_predict=0.975).caution is None
    assert same._replace(accuracy=0.98).caution is None
    assert "other labels than predict in 2.0 %" in str(same._replace(accuracy=None).caution)
    assert same._replace(accuracy=None, agreement=1.0).caution is None


# Codings and names of classes


@pytest.mark.parametrize("kind", ["raw", "scaled", "root", "common", "zscore", "centred", "sign"])
@pytest.mark.parametrize("engine", ENGINES)
def test_raw_inputs_and_names_of_classes(kind: str, engine: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """The coding in the file is bit for bit the one that was given, of columns that do not vary, too."""
    X = rng.poisson(3.0, size=(60, 70)).astype(float)
    X[:, 5] = 4.0
    coding = ebp.InputCoding.fit(kind, X[:40])
    network = random_network(rng, (70, 20, 3))
    bits = 0 if kind == "raw" else None
    export_packed(network, tmp_path / "net", fraction_bits=bits, coding=coding, classes=["a", "b", "ä"])
    packed = PackedNetwork.load(tmp_path / "net", engine)
    assert packed.coding is not None
    X[:, 5] = rng.integers(0, 9, 60)
    coded = coding.transform(X)
    np.testing.assert_array_equal(packed.coding.transform(X), coded)
    np.testing.assert_array_equal(packed.scores(X), packed.scores(coded, is_coded=True))
    scores = float_network(coded * 256, network._replace(biases=[256 * np.asarray(network.biases[0]), None]))
    np.testing.assert_array_equal(packed.integers(X), scores)
    expected = np.array(["a", "b", "ä"])[np.argmax(packed.scores(X), axis=1)]
    np.testing.assert_array_equal(packed.predict(X), expected)
    if kind in ("raw", "scaled", "root", "common"):
        np.testing.assert_array_equal(packed.predict(scipy.sparse.csr_matrix(X)), expected)
    with pytest.raises(ValueError, match="inputs must be finite, got NaN"):
        packed.predict(np.where(np.arange(70) == 3, np.nan, X))


@pytest.mark.parametrize(
    ("sizes", "names"),
    [((4, 1), ["no", "yes"]), ((4, 1), [False, True]), ((4, 3), [7, -2, 2**40]), ((4, 3), [0.5, 1.0, 2.5])],
)
def test_names_of_any_kind(sizes: tuple[int, ...], names: list[Any], tmp_path: Path, rng: np.random.Generator) -> None:
    network = random_network(rng, sizes)
    export_packed(network, tmp_path / "net", classes=np.array(names))
    packed = PackedNetwork.load(tmp_path / "net")
    X = rng.choice([-1.0, 1.0], size=(50, 4))
    scores = float_network(X, network) + np.asarray(network.biases[-1], np.float64)
    number = (scores[:, 0] >= 0).astype(int) if sizes[-1] == 1 else scores.argmax(axis=1)
    assert packed.classes is not None
    assert packed.classes.dtype == np.array(names).dtype
    np.testing.assert_array_equal(packed.predict(X), np.array(names)[number])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ["a"]}, "coding and classes must fit the network: .*classes must be null or 2 names"),
        ({"classes": ["a", "a"]}, "classes must differ"),
        ({"classes": ["a", 1.5]}, None),  # NumPy makes texts of both
        ({"classes": [0.5, float("nan")]}, "classes must all be texts|has NaN"),
        ({"classes": np.array(["2020-01-01", "2020-01-02"], "M8[D]")}, "date is not JSON serializable"),
        ({"coding": ebp.InputCoding.fit("zscore", np.eye(3))}, "its header says"),
    ],
)
def test_what_does_not_fit_is_not_written(
    options: dict[str, Any], message: str | None, tmp_path: Path, rng: np.random.Generator
) -> None:
    if message is None:
        export_packed(random_network(rng, (4, 1)), tmp_path / "net", **options)
        return
    with pytest.raises(ValueError, match=message):
        export_packed(random_network(rng, (4, 1)), tmp_path / "net", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_what_a_classifier_learns_can_be_exported(
    sparse: bool, num_classes: int, tmp_path: Path, rng: np.random.Generator
) -> None:
    """A file takes the classifier's raw inputs, gives its labels, and agrees with EBP-D on every row."""
    X = rng.poisson(1.0, size=(150, 12)) * 0.1  # not a multiple of a power of two
    labels = np.array(["ape", "bee", "cow"])[np.digitize(X[:, 0], [0.05, 0.15][: num_classes - 1])]
    inputs = scipy.sparse.csr_matrix(X) if sparse else X
    model = ebp.EBPClassifier((10,), output="deterministic", random_state=1).fit(inputs[:100], labels[:100])
    exported = export_checked(model, tmp_path / "net", inputs if sparse else inputs.tolist())
    assert exported.num_rows == 150
    file = PackedNetwork.load(tmp_path / "net")
    np.testing.assert_array_equal(file.predict(inputs), model.predict(inputs))
    np.testing.assert_array_equal(packed(model, num_votes=3).vote(inputs), packed(model, num_votes=3).vote(X))
    with pytest.raises(ValueError, match="coding must not be given with a classifier"):
        export_network(model, tmp_path / "other", coding=model.coding_)


def test_units(rng: np.random.Generator) -> None:
    """Whole numbers and the bound of their sums, dense and sparse."""
    X = rng.integers(-30, 30, size=(7, 9)) / 4
    for rows in (X, X.astype(np.float32), scipy.sparse.csr_matrix(X), scipy.sparse.csc_matrix(X)):
        q, largest = units(rows, 2)
        np.testing.assert_array_equal(q.toarray() if is_sparse(q) else q, 4 * X)
        assert largest >= np.abs(4 * X).sum(axis=1).max()
    big = np.full((1, 9), 2.0**22)
    assert units(big, 0).largest == 9 * 2.0**22
    assert units(np.zeros((0, 9)), 0).largest == 0

"""`ebp.packed` against float products of the same weights, for every engine; and files that have to be refused."""

import hashlib
import importlib.util
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import ebp
from ebp.packed import (
    FILE_VERSION,
    PackedNetwork,
    Weights,
    export_checked,
    export_network,
    export_packed,
    sign_products,
)

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
    export_packed(tmp_path / "net", network)
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
    export_packed(tmp_path / "net", network, fraction_bits=fraction_bits)
    packed = PackedNetwork.load(tmp_path / "net", engine)
    X = rng.integers(low, high, size=(57, 123)) / 2.0**fraction_bits
    expected = float_network(X, network)
    np.testing.assert_array_equal(packed.integers(X), expected)
    np.testing.assert_array_equal(packed.integers(X.astype(np.float32)), expected)


def test_sparse_in(tmp_path: Path, rng: np.random.Generator) -> None:
    """Also with blocks of few columns, as for 10^5 features."""
    network = random_network(rng, (3000, 120, 1))
    export_packed(tmp_path / "net", network, fraction_bits=0)
    packed = PackedNetwork.load(tmp_path / "net")
    X = scipy.sparse.random(40, 3000, density=0.02, format="csr", random_state=rng)
    X.data = rng.integers(1, 9, size=X.nnz).astype(np.float64)
    np.testing.assert_array_equal(packed.integers(X), float_network(X.toarray(), network))
    np.testing.assert_array_equal(packed.integers(X), packed.integers(X.toarray()))
    empty = scipy.sparse.csr_matrix((2, 3000))
    np.testing.assert_array_equal(packed.integers(empty), packed.integers(np.zeros((2, 3000))))


def test_large_integers_are_summed_in_float64(tmp_path: Path, rng: np.random.Generator) -> None:
    network = random_network(rng, (101, 9, 1))
    export_packed(tmp_path / "net", network, fraction_bits=0)
    X = rng.integers(-(2**23), 2**23, size=(300, 101))
    np.testing.assert_array_equal(
        PackedNetwork.load(tmp_path / "net").integers(X), float_network(X, network, np.float64)
    )


def test_one_layer_of_fractions(tmp_path: Path, rng: np.random.Generator) -> None:
    network = random_network(rng, (40, 3), np.float64)
    export_packed(tmp_path / "net", network, fraction_bits=3)
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
        tmp_path / "net", Weights([signs, np.ones((1, 1), np.int8)], [np.array([b]), np.zeros(1, np.float32)])
    )
    X = np.where(np.arange(9) < np.arange(10)[:, None], 1, -1)
    expected = np.where(X.sum(axis=1).astype(np.float32) + b >= 0, 1, -1)
    np.testing.assert_array_equal(PackedNetwork.load(tmp_path / "net").integers(X)[:, 0], expected)


def test_no_biases(tmp_path: Path, rng: np.random.Generator) -> None:
    network = random_network(rng, (50, 20, 1))
    export_packed(tmp_path / "none", Weights(network.signs, [None, None]))
    export_packed(tmp_path / "zero", Weights(network.signs, [np.zeros(20, np.float32), np.zeros(1, np.float32)]))
    assert (tmp_path / "none").read_bytes() == (tmp_path / "zero").read_bytes()


@pytest.mark.parametrize("num_outputs", [1, 4])
def test_vote(num_outputs: int, tmp_path: Path, rng: np.random.Generator) -> None:
    networks = [random_network(rng, (30, 21, num_outputs)) for _ in range(5)]
    export_packed(tmp_path / "net", *networks)
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


@pytest.mark.parametrize("num_words", [1, 3, 64])
def test_both_compiled_kernels(num_words: int, rng: np.random.Generator) -> None:
    """Counts above 255 and 31 bytes, where the byte counters are widened; all bits different; one row and many."""
    popcount = pytest.importorskip("ebp.popcount")
    for num_rows in (1, 8, 200):
        x = rng.integers(0, 256, size=(num_rows, 8 * num_words), dtype=np.uint8)
        w = rng.integers(0, 256, size=(45, 8 * num_words), dtype=np.uint8)
        w[7] = ~x[0]
        expected = 64 * num_words - 2 * np.unpackbits(x[:, None] ^ w, axis=2).sum(axis=2, dtype=np.int64)
        assert expected[0, 7] == -64 * num_words
        for blocked in [None, *([popcount.blocked(w)] if popcount.HAS_SHUFFLE else [])]:
            out = sign_products(x, w, 64 * num_words, blocked, "numba")
            np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(sign_products(x, w, 64 * num_words), expected)


def test_size_of_the_file(tmp_path: Path, rng: np.random.Generator) -> None:
    """About 30 times smaller than float32: the thresholds, padding and header are the rest of 32."""
    network = random_network(rng, (784, 500, 10))
    size = export_packed(tmp_path / "net", network)
    assert size == (tmp_path / "net").stat().st_size == PackedNetwork.load(tmp_path / "net").num_bytes
    floats = 4 * sum(w.size + w.shape[1] for w in network.signs)
    assert floats / size > 29.5


@pytest.fixture
def file(tmp_path: Path, rng: np.random.Generator) -> Path:
    export_packed(tmp_path / "net", random_network(rng, (30, 20, 1)))
    return tmp_path / "net"


def test_truncated_files(file: Path) -> None:
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"net is (truncated|not a packed network)"):
            PackedNetwork.load(file)


def test_corrupt_files(file: Path) -> None:
    content = file.read_bytes()
    for position in range(len(content)):
        file.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(ValueError, match=r"corrupt|not a packed network|version"):
            PackedNetwork.load(file)


def test_foreign_file(file: Path) -> None:
    np.savez(file.with_suffix(".npz"), a=1)
    with pytest.raises(ValueError, match=r"net.npz is not a packed network: it starts with b'PK"):
        PackedNetwork.load(file.with_suffix(".npz"))
    with pytest.raises(ValueError, match="nothing cannot be read as a packed network"):
        PackedNetwork.load(file.with_name("nothing"))


def test_other_version(file: Path) -> None:
    content = bytearray(file.read_bytes()[:-32])
    content[8] = FILE_VERSION + 1
    file.write_bytes(bytes(content) + hashlib.sha256(content).digest())
    with pytest.raises(ValueError, match=f"is a packed network of version {FILE_VERSION + 1}, this program"):
        PackedNetwork.load(file)


def test_header_that_does_not_fit(file: Path) -> None:
    content = file.read_bytes()[:-32].replace(b"[30,20]", b"[30,21]")
    file.write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(ValueError, match="not a packed network that this program can read"):
        PackedNetwork.load(file)


def test_a_failed_export_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.read_bytes()

    def no_space(descriptor: int) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        export_packed(file, Weights([np.ones((3, 1))], [None]))
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


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
        export_packed(tmp_path / "net", weights)
    assert not list(tmp_path.iterdir())


def test_bad_calls(file: Path, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="at least one network"):
        export_packed(file)
    with pytest.raises(ValueError, match="fraction_bits must be None or from 0 to 24, got -1"):
        export_packed(file, random_network(rng, (3, 1)), fraction_bits=-1)
    with pytest.raises(ValueError, match="network 1 has others"):
        export_packed(file, random_network(rng, (3, 1)), random_network(rng, (4, 1)))
    with pytest.raises(ValueError, match="engine must be 'auto', 'numba' or 'numpy', got 'c'"):
        PackedNetwork.load(file, "c")
    packed = PackedNetwork.load(file)
    with pytest.raises(ValueError, match="must all be -1 or \\+1"):
        packed.integers(np.zeros((2, 30)))
    with pytest.raises(ValueError, match=r"numbers \[N, 30\], got shape \[2, 29\]"):
        packed.integers(np.ones((2, 29)))
    with pytest.raises(ValueError, match="network must be from 0 to 0, got 1"):
        packed.integers(np.ones((2, 30)), 1)
    with pytest.raises(ValueError, match="cannot be sparse"):
        packed.integers(scipy.sparse.csr_matrix(np.ones((2, 30))))
    export_packed(file, random_network(rng, (3, 1)), fraction_bits=1)
    packed = PackedNetwork.load(file)
    for bad in (0.25, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"multiples of 2\^-1|less than 2\^31"):
            packed.integers(np.full((1, 3), bad))
    with pytest.raises(ValueError, match="less than 2\\^31 units"):
        packed.integers(np.full((1, 3), 2.0**30))


def test_without_numba(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
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
    export_network(tmp_path / "mode", network, fraction_bits=4)
    packed = PackedNetwork.load(tmp_path / "mode")
    scale = np.sqrt(network.architecture.fan_ins[-1])
    np.testing.assert_array_equal(packed.scores(new) / scale, network.deterministic_scores(new))
    np.testing.assert_array_equal(packed.predict(new), network.predict_deterministic(new))
    export_network(tmp_path / "votes", network, fraction_bits=4, num_votes=5, seed=3)
    voting = PackedNetwork.load(tmp_path / "votes")
    np.testing.assert_array_equal(voting.vote(new), network.vote(new, 5, seed=3))
    assert len({voting.integers(new, i).tobytes() for i in range(5)}) == 5


def test_other_weights_cannot_be_packed(tmp_path: Path) -> None:
    for prior in ("real", ebp.TernaryWeights(nu=2.0)):
        network = ebp.EBPNetwork((4, 3, 1), [prior, "binary"])
        with pytest.raises(ValueError, match="only networks of binary weights can be packed"):
            export_network(tmp_path / "net", network)
    with pytest.raises(ValueError, match="num_votes must not be negative, got -1"):
        export_network(tmp_path / "net", ebp.EBPNetwork((4, 3, 1)), num_votes=-1)


@pytest.mark.parametrize("num_votes", [0, 3])
def test_checked_export(num_votes: int, tmp_path: Path, rng: np.random.Generator) -> None:
    network = ebp.EBPNetwork((7, 5, 1), seed=2)
    X = rng.integers(-8, 8, size=(40, 7)) / 4
    path = tmp_path / "new" / "net"
    exported = export_checked(path, network, X, fraction_bits=2, num_votes=num_votes, seed=4)
    packed = PackedNetwork.load(path)
    assert exported.num_bytes == packed.num_bytes == path.stat().st_size
    assert (exported.num_rows, exported.float_bytes) == (40, 4 * max(1, num_votes) * (35 + 5 + 5 + 1))
    assert "the same outputs on 40 rows" in exported.summary
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
        PackedNetwork, method, lambda *arguments: right(*arguments) + (np.arange(20) == 13)[:, None] * 1e-12
    )
    with pytest.raises(
        ValueError, match="1 of 20 rows differ: the inputs are too large for exact sums; use dtype=floa"
    ):
        export_checked(file, ebp.EBPNetwork((7, 5, 1)), X, num_votes=num_votes)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]

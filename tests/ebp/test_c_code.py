"""`ebp.export_c`: compiled without warnings, small, and the labels of `PackedNetwork` on every row, also in 32 bits."""

import ctypes
import itertools
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import ebp
from ebp.packed.export import Weights, export_packed, packed
from ebp.packed.packed import PackedNetwork

GCC = shutil.which("gcc")
STRICT = ["-std=c99", "-Os", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Werror"]

needs_gcc = pytest.mark.skipif(GCC is None, reason="no gcc")

CASES: list[tuple[tuple[int, ...], int, str | None, str]] = [
    ((64, 20, 10), 3, "common", "uint8"),
    ((64, 20, 10), 3, "zscore", "int16"),
    ((9, 5, 1), 4, "zscore", "float32"),
    ((9, 1), 2, "zscore", "int16"),
    ((9, 3), 1, "scaled", "float64"),
    ((9, 3), 1, "scaled", "int8"),
    ((12, 7, 9, 4), 2, "sign", "float32"),
    ((12, 7, 4), 1, "raw", "int8"),
    ((12, 4), 2, "raw", "float32"),
    ((30, 17, 3), 1, "centred", "uint8"),
    ((30, 17, 1), 1, None, "int8"),
]

ALONE = """
typedef unsigned char u8;
static int call(int number, int a, const void *b, int c)
{
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}
void _start(void)
{
    static ROW x[SIZE];
    for (;;) {
        int got = 0, more;
        while (got < (int)sizeof x && (more = call(3, 0, (u8 *)x + got, (int)sizeof x - got)) > 0)
            got += more;
        if (got < (int)sizeof x)
            call(1, 0, 0, 0);
        u8 label = (u8)ebp_predict(x);
        call(4, 1, &label, 1);
    }
}
"""
"""A program of 32 bits without a library: rows from standard input, labels to standard output."""


def made(
    rng: np.random.Generator, sizes: Sequence[int], votes: int, kind: str | None, inputs: str, folder: Path
) -> tuple[PackedNetwork, np.ndarray]:
    """A network with random weights, and rows for it; one column does not vary where the coding is learned."""
    networks = [
        Weights(
            [rng.choice([-1, 1], shape) for shape in itertools.pairwise(sizes)],
            [3 * rng.normal(size=n) for n in sizes[1:]],
        )
        for _ in range(votes)
    ]
    if kind is None:
        X = rng.choice([-1, 1], (400, sizes[0])).astype(inputs)
    elif inputs.startswith("float"):
        X = (rng.integers(-9, 9, (400, sizes[0])) if kind == "raw" else rng.normal(2, 3, (400, sizes[0]))).astype(
            inputs
        )
    else:
        limits = np.iinfo(inputs)
        X = rng.integers(limits.min, limits.max + 1, (400, sizes[0])).astype(inputs)
        X[:100, 3] = 7
    coding = None if kind is None else ebp.InputCoding.fit(kind, X[:100])
    export_packed(networks, folder / "net.ebp", coding=coding, fraction_bits=0 if kind == "raw" else None)
    return PackedNetwork.load(folder / "net.ebp", "numpy"), np.ascontiguousarray(X)


def compiled(folder: Path, *options: str) -> None:
    done = subprocess.run([str(GCC), *options], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def labels_of(folder: Path, X: np.ndarray) -> np.ndarray:
    """By a library that is made of net.c; each one has a name of its own, as they stay in the process."""
    library = f"net-{X.dtype}.so"
    compiled(folder, *STRICT, "-shared", "-fPIC", "net.c", "-o", library)
    function = ctypes.CDLL(str(folder / library)).ebp_predict
    return np.array([function(ctypes.c_void_p(row.ctypes.data)) for row in X])


def numbers_of(network: PackedNetwork, X: np.ndarray) -> np.ndarray:
    found = network.predict(X)
    return found if network.layer_sizes[-1] > 1 else (found > 0).astype(int)


@needs_gcc
@pytest.mark.parametrize(("sizes", "votes", "kind", "inputs"), CASES, ids=str)
def test_labels(
    sizes: tuple[int, ...], votes: int, kind: str | None, inputs: Any, tmp_path: Path, rng: np.random.Generator
) -> None:
    network, X = made(rng, sizes, votes, kind, inputs, tmp_path)
    ebp.export_c(network, tmp_path / "net.c", inputs=inputs)
    expected = numbers_of(network, X)
    assert len(set(expected)) > 1
    np.testing.assert_array_equal(labels_of(tmp_path, X), expected)


def has_32_bits(folder: Path) -> bool:
    """Whether such programs can be made and run."""
    program = 'void _start(void) { __asm__ volatile("int $0x80" : : "a"(1), "b"(0)); }'
    (folder / "try.c").write_text(program)
    flags = ["-m32", "-nostdlib", "-static", "-ffreestanding", "-fno-pic", "-no-pie"]
    try:
        subprocess.run([str(GCC), *flags, "try.c", "-o", "try"], cwd=folder, check=True, capture_output=True)
        return subprocess.run([str(folder / "try")]).returncode == 0
    except (OSError, subprocess.CalledProcessError):
        return False


@needs_gcc
@pytest.mark.parametrize(("sizes", "votes", "kind", "inputs"), [CASES[0], CASES[1], CASES[3], CASES[7]], ids=str)
def test_labels_of_32_bits(
    sizes: tuple[int, ...], votes: int, kind: str | None, inputs: Any, tmp_path: Path, rng: np.random.Generator
) -> None:
    """The same labels from a program that has no library at all, which shows that none is needed."""
    if not has_32_bits(tmp_path):
        pytest.skip("no programs of 32 bits here")
    network, X = made(rng, sizes, votes, kind, inputs, tmp_path)
    kinds = {"uint8": "uint8_t", "int16": "int16_t", "int8": "int8_t"}
    program = ALONE.replace("ROW", kinds[inputs]).replace("SIZE", str(sizes[0]))
    (tmp_path / "net.c").write_text(ebp.export_c(network, inputs=inputs) + program)
    flags = [
        "-m32",
        "-Os",
        "-nostdlib",
        "-static",
        "-ffreestanding",
        "-fno-pic",
        "-no-pie",
        "-mpreferred-stack-boundary=4",
    ]
    compiled(tmp_path, *flags, "-fno-stack-protector", "net.c", "-o", "net")
    done = subprocess.run([str(tmp_path / "net")], input=X.tobytes(), capture_output=True)
    np.testing.assert_array_equal(np.frombuffer(done.stdout, np.uint8), numbers_of(network, X))


@needs_gcc
@pytest.mark.parametrize("width", [[], ["-m32"]], ids=["64 bits", "32 bits"])
def test_five_voting_networks_need_less_than_10_kilobytes(width: list[str], tmp_path: Path) -> None:
    """Flash and RAM by the compiler's account, no undefined symbol, and the labels of all digits."""
    X, labels = load_digits(return_X_y=True)
    model = ebp.EBPClassifier((120,), epochs=3, batch_size=10).fit(X[:1300], labels[:1300])
    network = packed(model, num_votes=5)
    ebp.export_c(network, tmp_path / "net.c", inputs="uint8")
    if subprocess.run(
        [str(GCC), *width, "-E", "-x", "c", "-ffreestanding", "-"], input=b"", capture_output=True
    ).returncode:
        pytest.skip("no code of this width here")
    compiled(tmp_path, *STRICT, *width, "-ffreestanding", "-fno-pic", "-fstack-usage", "-c", "net.c", "-o", "net.o")
    assert subprocess.run(["nm", "-u", "net.o"], cwd=tmp_path, capture_output=True, text=True).stdout == ""
    sizes = subprocess.run(["size", "net.o"], cwd=tmp_path, capture_output=True, text=True).stdout
    text, data, bss = map(int, sizes.splitlines()[1].split()[:3])
    stack = sum(int(line.split("\t")[1]) for line in (tmp_path / "net.su").read_text().splitlines())
    assert text + data < 10_000
    assert data + bss + stack < 1_000 - 64
    if not width:
        rows = X.astype(np.uint8)
        np.testing.assert_array_equal(labels_of(tmp_path, rows), network.predict(rows))


def test_the_same_network_by_each_way(tmp_path: Path, rng: np.random.Generator) -> None:
    X = rng.integers(0, 17, (80, 6))
    labels = np.where(X[:, 0] > 8, "*/ yes", "no /* \\")
    model = ebp.EBPClassifier((5,), epochs=1, batch_size=10).fit(X, labels)
    source = ebp.export_c(model, inputs="uint8", num_votes=2, seed=3)
    ebp.export_network(model, tmp_path / "net.ebp", num_votes=2, seed=3)
    assert ebp.export_c(PackedNetwork.load(tmp_path / "net.ebp"), tmp_path / "net.c", inputs="uint8") == source
    assert (tmp_path / "net.c").read_text() == source
    comment = source[: source.index("#include")]
    assert comment.count("*/") == 1  # names of classes do not end it
    assert comment.count("/*") == 1
    assert "\\" not in comment


def test_bad_calls(tmp_path: Path, rng: np.random.Generator) -> None:
    network, _ = made(rng, (9, 3), 1, "zscore", "float32", tmp_path)
    with pytest.raises(ValueError, match="inputs must be one of int8, uint8, int16, float32, float64, got 'bool'"):
        ebp.export_c(network, inputs="bool")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"name must be one that C takes, .* got '3x'"):
        ebp.export_c(network, name="3x")
    with pytest.raises(ValueError, match="a packed network has all of its options already, got num_votes"):
        ebp.export_c(network, num_votes=3)
    with pytest.raises(ValueError, match="a packed network knows no other predict to be compared with"):
        ebp.export_c(network, X=np.zeros((1, 9)))
    with pytest.raises(ValueError, match="only networks of binary weights"):
        ebp.export_c(ebp.EBPNetwork((3, 1), "real"))
    many, _ = made(rng, (2, 300), 1, "zscore", "float32", tmp_path)
    with pytest.raises(ValueError, match="at most 255 networks, outputs and layers"):
        ebp.export_c(many)
    wide = Weights([rng.choice([-1, 1], (9, 1))], [None])
    export_packed(wide, tmp_path / "wide", fraction_bits=24)
    with pytest.raises(ValueError, match="cannot be coded by whole numbers in column 0; give inputs='float32'"):
        ebp.export_c(PackedNetwork.load(tmp_path / "wide"), inputs="int16")

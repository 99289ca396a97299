"""`python -m ebp` and `ebp.packed.packed` where NumPy is all there is."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ebp
from ebp.__main__ import main, read_rows
from ebp.packed.export import Weights, export_packed

ROOT = Path(__file__).resolve().parent.parent.parent

ALONE = """
import importlib.machinery
import sys

class Only:
    def find_spec(self, name, path=None, target=None):
        is_known = name.split(".")[0] in {*sys.stdlib_module_names, "numpy", "ebp", "gpflow_deep_base"}
        return importlib.machinery.PathFinder.find_spec(name, path, target) if is_known else None

sys.meta_path[:] = [importlib.machinery.BuiltinImporter, importlib.machinery.FrozenImporter, Only()]
"""
"""Nothing but Python, NumPy and this package can be imported, as if it was not installed."""


@pytest.fixture
def network(tmp_path: Path, rng: np.random.Generator) -> ebp.PackedNetwork:
    """Of raw rows of 9 columns, three classes."""
    signs = [rng.choice([-1, 1], shape) for shape in ((9, 20), (20, 3))]
    coding = ebp.InputCoding.fit("zscore", rng.normal(size=(30, 9)))
    classes = ["ape", "bee, the", 'cow "c"']
    export_packed(Weights(signs, [rng.normal(size=20), None]), tmp_path / "net.ebp", coding=coding, classes=classes)
    return ebp.PackedNetwork.load(tmp_path / "net.ebp")


def test_numpy_is_enough(network: ebp.PackedNetwork, tmp_path: Path, rng: np.random.Generator) -> None:
    """TensorFlow, SciPy and all others are absent, and the labels are those that Numba finds."""
    X = rng.normal(size=(40, 9))
    np.save(tmp_path / "X.npy", X)
    program = f"{ALONE}\nimport runpy\nsys.argv = ['ebp', 'net.ebp', 'X.npy', '--output=labels.csv']\n"
    program += (
        "try:\n    runpy.run_module('ebp', run_name='__main__')\nexcept SystemExit as stop:\n    code = stop.code\n"
    )
    program += "import ebp.packed.packed\n"
    program += "assert ebp.packed.packed.PackedNetwork.load('net.ebp').engine == 'numpy'\nsys.exit(code)\n"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "40 labels written to labels.csv\n"
    pandas = pytest.importorskip("pandas")
    assert pandas.read_csv(tmp_path / "labels.csv")["label"].tolist() == network.predict(X).tolist()


def test_the_others_are_not_there(tmp_path: Path) -> None:
    program = f"{ALONE}\nimport tensorflow"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert "No module named 'tensorflow'" in done.stderr


@pytest.mark.parametrize("name", ["rows.npy", "rows.npz", "rows.csv", "named.csv"])
def test_files_of_rows(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    X = rng.normal(size=(4, 3))
    np.save(tmp_path / "rows.npy", X)
    np.savez(tmp_path / "rows.npz", X=X)
    np.savetxt(tmp_path / "rows.csv", X, delimiter=",")
    np.savetxt(tmp_path / "named.csv", X, delimiter=",", header="a,b,c", comments="")
    np.testing.assert_allclose(read_rows(str(tmp_path / name)), X, rtol=1e-15)


def test_labels_are_printed(
    network: ebp.PackedNetwork, tmp_path: Path, capsys: pytest.CaptureFixture[str], rng: np.random.Generator
) -> None:
    X = rng.normal(size=(3, 9))
    np.save(tmp_path / "X.npy", X)
    assert main([str(tmp_path / "net.ebp"), str(tmp_path / "X.npy")]) == 0
    quoted = {"ape": "ape", "bee, the": '"bee, the"', 'cow "c"': '"cow ""c"""'}
    assert capsys.readouterr().out.splitlines() == [quoted[label] for label in network.predict(X)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("none.npy", "there is none at none.npy"),
        ("rows.txt", "must be in a file .npy, .npz or .csv, got rows.txt"),
        ("bad.csv", "bad.csv cannot be read as rows of numbers"),
        ("gap.csv", "gap.csv cannot be read as rows of numbers"),
        ("pickle.npy", "pickle.npy cannot be read as rows of numbers"),
        ("other.npz", "other.npz cannot be read as rows of numbers"),
        ("huge.npy", "huge.npy cannot be read as rows of numbers"),
        ("narrow.csv", r"inputs must be numbers [N, 9], got shape [1, 2]"),
    ],
)
def test_errors_are_one_line_and_write_nothing(
    data: str,
    message: str,
    network: ebp.PackedNetwork,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.csv").write_text("a,b\n1,x\n")
    Path("gap.csv").write_text("1,,3\n1,2,3\n")  # whose first row is no line of names
    Path("narrow.csv").write_text("1,2\n")
    np.save("pickle.npy", np.array([{}]), allow_pickle=True)
    np.savez("other.npz", Y=np.ones(3))
    np.save("huge.npy", np.ones((2, 2)))
    content = Path("huge.npy").read_bytes().replace(b"(2, 2), }" + b" " * 20, b"(200000000, 200000000), }    ")
    Path("huge.npy").write_bytes(content)
    before = set(tmp_path.iterdir())
    assert main(["net.ebp", data, "--output=labels.csv"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("python -m ebp: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert set(tmp_path.iterdir()) == before
    assert network.num_networks == 1

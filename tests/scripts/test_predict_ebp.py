"""`scripts/predict_ebp.py` after `scripts/train_ebp.py`, on tables, documents and sparse matrices."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from gpflow_deep_base.seeds import numpy_rng
from scripts import predict_ebp, train_ebp
from tests.scripts.running import Finished, called, result_of

SMALL = ["--hidden=6", "--epochs=2", "--num_folds=3", "--max_folds=1", "--noprogress"]
DATA = {
    "table": ["--data=table.csv", "--target=kind", "--weights=real,binary"],
    "documents": ["--data=documents.jsonl"],
    "matrix": ["--data=matrix.npz", "--labels=labels.txt"],
}
FILES = {"table": "table.csv", "documents": "documents.jsonl", "matrix": "labelled.npz"}


def call(folder: Path, *arguments: str) -> Finished:
    return called(predict_ebp.main, "predict_ebp.py", folder, list(arguments))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on 90 rows of each form."""
    folder = tmp_path_factory.mktemp("predict_ebp")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4))
    kinds = np.array(["ape", "bee", "cow"])[np.digitize(x[:, 0], [-0.5, 0.5])]
    pd.DataFrame(x, columns=list("abcd")).assign(kind=kinds).to_csv(folder / "table.csv", index=False)
    texts = [f"word{int(kind == 'ape')} word{rng.integers(2, 9)} word{rng.integers(2, 9)}" for kind in kinds]
    lines = [
        json.dumps({"text": t, "label": "ape" if k == "ape" else "other"}) for t, k in zip(texts, kinds, strict=True)
    ]
    (folder / "documents.jsonl").write_text("\n".join(lines))
    X, y = scipy.sparse.csr_matrix(np.abs(x)), np.where(np.abs(x[:, 0]) > 0.7, 1, -1)
    scipy.sparse.save_npz(folder / "matrix.npz", X)
    np.savetxt(folder / "labels.txt", y, fmt="%d")
    np.savez(folder / "labelled.npz", data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, labels=y)
    for name, flags in DATA.items():
        done = called(train_ebp.main, "train_ebp.py", folder, [f"--run_dir={name}", *flags, *SMALL])
        assert (done.code, done.err) == (0, ""), done.err
    return folder


@pytest.mark.parametrize("name", DATA)
def test_errors_are_those_of_the_run(name: str, folder: Path) -> None:
    """On the test rows of the first fold, by the first kind of weights; labels are the most probable ones."""
    done = call(folder, f"--run_dir={name}", f"--data={FILES[name]}", f"--output=of_{name}.csv")
    assert (done.code, done.err) == (0, "")
    found = pd.read_csv(folder / f"of_{name}.csv", dtype={"label": str})
    shares = found.filter(like="probability_")
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-9)
    assert (
        found["label"] == shares.columns.str.removeprefix("probability_").to_numpy()[shares.to_numpy().argmax(1)]
    ).all()
    result = result_of(folder, name)
    right = {
        "table": lambda: pd.read_csv(folder / "table.csv")["kind"],
        "documents": lambda: pd.Series(
            [json.loads(x)["label"] for x in (folder / "documents.jsonl").read_text().splitlines()]
        ),
        "matrix": lambda: pd.Series((folder / "labels.txt").read_text().split()),
    }[name]()
    test_rows = numpy_rng(0, "folds/90").permutation(90)[:30]
    error = 100 * np.mean(found["label"][test_rows].to_numpy() != right[test_rows].to_numpy())
    weights = "real" if name == "table" else "binary"
    in_run = result["models"][f"{weights} P"]["last_percent"]
    assert error == pytest.approx(in_run) if name == "table" else error <= in_run + 10  # two classes have an offset
    all_wrong = 100 * np.mean(found["label"].to_numpy() != right.to_numpy())
    assert f"error_percent: {all_wrong:.6g}" in done.out
    density = np.log([row[f"probability_{label}"] for (_, row), label in zip(shares.iterrows(), right, strict=True)])
    np.testing.assert_allclose(found["log_density"], density, rtol=1e-6)


def test_rows_without_labels_and_other_weights(folder: Path) -> None:
    pd.read_csv(folder / "table.csv")[list("dcba")].head(7).to_csv(folder / "new.csv", index=False)
    for weights in ("real", "binary"):
        done = call(folder, "--run_dir=table", "--data=new.csv", f"--weights={weights}", f"--output={weights}.csv.gz")
        assert done.out == f"7 predictions written to {weights}.csv.gz\n", done.err
    real, binary = (pd.read_csv(folder / f"{weights}.csv.gz") for weights in ("real", "binary"))
    assert list(real.columns) == ["label", "probability_ape", "probability_bee", "probability_cow"]
    assert not np.allclose(real["probability_ape"], binary["probability_ape"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--run_dir=table", "--data=none.csv"], "there is none at none.csv"),
        (["--run_dir=nowhere", "--data=new.csv"], "whose first fold is done, nowhere has no model_"),
        (
            ["--run_dir=table", "--data=table.csv", "--weights=ternary"],
            "must be one of the run, binary, real, got ternary",
        ),
        (["--run_dir=table", "--data=table.csv", "--output=x.txt"], "--output must end in .csv or .csv.gz, got x.txt"),
        (["--run_dir=table", "--data=table.csv", "--target=kind"], "--target is for documents and sparse matrices"),
        (["--run_dir=documents", "--data=table.csv"], "so --data must be .jsonl, got table.csv"),
        (["--run_dir=matrix", "--data=documents.jsonl"], "trained on a sparse matrix, so --data must be one"),
    ],
)
def test_errors_write_nothing(arguments: list[str], message: str, folder: Path) -> None:
    before = set(folder.iterdir())
    done = call(folder, *arguments)
    assert done.code == 2, done.out + done.err
    assert re.fullmatch(rf"predict_ebp\.py: error: .*{message}.*\n", done.err), done.err
    assert set(folder.iterdir()) == before

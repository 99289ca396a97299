"""The script compresses and restores files, says how well, and reports bad input in one line."""

import bz2
import gzip
import json
import lzma
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from darn.model.model import DARN, DARNConfig
from darn.model.serialization import save_darn
from darn.more.mixture import Mixture, save_density
from darn.train.chain_fitting import fit_chain
from gpflow_deep_base.files import write_json
from gpflow_deep_runs.data.density.bits import read_bits
from scripts.compress_with_darn import decode, encode
from tests.scripts.running import Finished, called

SCRIPT = "compress_with_darn.py"
N = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images, a model of them (untrained but for the means), and files that are wrong in some way."""
    folder = tmp_path_factory.mktemp("compress")
    rng = np.random.default_rng(0)
    images = (rng.random((N, 11)) < rng.random(11)).astype(np.uint8)
    save_darn(DARN(DARNConfig(11, (4,)), seed=2, data=images), folder / "run" / "darn.npz")
    np.save(folder / "in.npy", images)
    np.savez(folder / "in.npz", X=images)
    packed = {part: np.packbits(rows, axis=1) for part, rows in (("train", images[:200]), ("test", images[200:]))}
    np.savez(folder / "packed.npz", n_features=11, **packed)
    np.savetxt(folder / "in.csv", images, fmt="%d", delimiter=",")
    names = ",".join(f"pixel{j}" for j in range(11))
    with gzip.open(folder / "named.csv.gz", "wt") as file:
        np.savetxt(file, images, fmt="%d", delimiter=",", header=names, comments="")
    np.save(folder / "narrow.npy", images[:, :5])
    np.save(folder / "grey.npy", images * 0.5)
    (folder / "broken.npy").write_bytes(b"\x93NUMPY")
    (folder / "text.txt").write_text("1")
    (folder / "other.darn").write_bytes(b"something else")
    (folder / "kept.npy").write_bytes(b"kept")
    (folder / "empty").mkdir()
    shop = pd.DataFrame({"paid": rng.choice(["yes", "no"], 40), "kind": rng.choice(["ale", "bun", "cod"], 40)})
    shop.assign(new=rng.integers(0, 2, 40)).to_csv(folder / "shop.csv", index=False)
    shop.iloc[:9, ::-1].assign(new=1, other="x").to_csv(folder / "more.tsv", index=False, sep="\t")
    shop.iloc[:9].to_csv(folder / "fewer.csv", index=False)
    data = read_bits(folder / "shop.csv")
    assert data.schema is not None
    save_darn(DARN(DARNConfig(5, (2,)), seed=2, data=data.train.X), folder / "shop" / "darn.npz")
    write_json(folder / "shop" / "columns.json", data.schema.to_json())
    np.save(folder / "levels.npy", rng.integers(0, 16, (N, 5)))
    for name, config in {
        "planes": DARNConfig(20, (4,)),
        "other": DARNConfig(11, (4,)),
        "eonade": DARNConfig(11, (4,), prior="eonade"),
        "digits": DARNConfig(64, (4,)),
    }.items():
        save_darn(DARN(config, seed=3), folder / f"{name}.npz")
    return folder


INPUTS = ("in.npy", "in.npz", "in.csv", "named.csv.gz")
ENCODE = ("encode", "--model=run", "--length_samples=0")
PLANES = ("--model=planes.npz", "--bit_planes=4")
DECODE = ("decode", "--model=run/darn.npz")
GOOD = {
    **{name: [*ENCODE, f"--input={name}", f"--output={name}.darn"] for name in INPUTS},
    "part": [*ENCODE, "--input=packed.npz", "--part=test", "--output=part.darn", "--rows=70", "--check"],
    "npy": [*DECODE, "--input=in.npy.darn", "--output=out.npy", "--batch_size=3"],
    "npz": [*DECODE, "--input=in.npy.darn", "--output=out.npz"],
    "csv": [*DECODE, "--input=in.npy.darn", "--output=out.csv"],
    "part back": [*DECODE, "--input=part.darn", "--output=part.npy"],
    "lengths": [*ENCODE[:2], "--input=in.npy", "--output=x.darn", "--length_samples=50", "--report=report.json"],
    "table": ["encode", "--model=shop", "--input=more.tsv", "--output=shop.darn", "--length_samples=0"],
    "bits": ["decode", "--model=shop", "--input=shop.darn", "--output=shop_bits.csv"],
    "bits again": ["encode", "--model=shop", "--input=shop_bits.csv", "--output=again.darn", "--length_samples=0"],
    "planes": ["encode", *PLANES, "--input=levels.npy", "--output=levels.darn", "--length_samples=0"],
    "levels": ["decode", *PLANES, "--input=levels.darn", "--output=levels_out.npy"],
    "digits": ["encode", "--model=digits.npz", "--dataset=digits", "--output=d.darn", "--rows=20", "--check"],
}
BAD = {
    "must have the columns of the training data, but lacks 'new'": [
        *("encode", "--model=shop", "--input=fewer.csv", "--output=y.darn"),
    ],
    "say encode or decode, then flags, --name=value, got 'compress'": ["compress", "--model=run", "--output=x"],
    "say encode or decode, then flags, --name=value, got ''": [],
    "of a run that has ended; there is no empty": ["encode", "--model=empty", "--input=in.npy", "--output=y.darn"],
    "of a run that has ended; there is no missing": ["encode", "--model=missing", "--input=in.npy", "--output=y.darn"],
    "there is none at missing.npy": [*ENCODE, "--input=missing.npy", "--output=y.darn"],
    "must be [N, 11]": [*ENCODE, "--input=narrow.npy", "--output=y.darn"],
    "0 or 1 everywhere": [*ENCODE, "--input=grey.npy", "--output=y.darn"],
    "say which with --part": [*ENCODE, "--input=packed.npz", "--output=y.darn"],
    "cannot be read as rows of numbers": [*ENCODE, "--input=broken.npy", "--output=y.darn"],
    "must end in .npy, .npz, .csv or .csv.gz": [*ENCODE, "--input=text.txt", "--output=y.darn"],
    "cannot be coded, got EoNADE": ["encode", "--model=eonade.npz", "--input=in.npy", "--output=y.darn"],
    "give --input or --dataset, one of them": [*ENCODE, "--output=y.darn"],
    "--part of a --dataset must be": [*ENCODE, "--dataset=digits", "--part=X", "--output=y.darn"],
    "--rows must be at least 1, got 0": [*ENCODE, "--input=in.npy", "--output=y.darn", "--rows=0"],
    "--length_samples must not be negative": [*ENCODE, "--input=in.npy", "--output=y.darn", "--length_samples=-1"],
    "--batch_size must be at least 1, got 0": [*ENCODE, "--input=in.npy", "--output=y.darn", "--batch_size=0"],
    "--output must be given": [*ENCODE, "--input=in.npy"],
    "no file coded with a DARN": [*DECODE, "--input=other.darn", "--output=kept.npy"],
    "no such file or directory": [*DECODE, "--input=missing.darn", "--output=kept.npy"],
    "--output must end in .npy, .npz, .csv": [*DECODE, "--input=in.npy.darn", "--output=y.txt"],
    "Unknown command line flag 'check'": [*DECODE, "--input=in.npy.darn", "--output=kept.npy", "--check"],
    "give the model it was coded with": ["decode", "--model=other.npz", "--input=x.darn", "--output=kept.npy"],
}


def call(folder: Path, arguments: list[str]) -> Finished:
    """The script, called in this process and in `folder`."""
    return called({"encode": encode, "decode": decode}, SCRIPT, folder, arguments)


@pytest.fixture(scope="module")
def finished(folder: Path) -> dict[str, Finished]:
    """All good calls."""
    return {name: call(folder, arguments) for name, arguments in GOOD.items()}


def test_what_cannot_be_restored_is_said_when_it_is_encoded(folder: Path, finished: dict[str, Finished]) -> None:
    table = (folder / "more.tsv").read_bytes()
    said = f"more.tsv itself: {len(table)} bytes, bz2 {len(bz2.compress(table))}, lzma {len(lzma.compress(table))}"
    assert "decode restores these bits and not the table" in finished["table"].out
    assert said in finished["table"].out
    for name in ("in.npy", "bits again", "planes"):  # these are bits, and are restored
        assert "not the table" not in finished[name].out


def test_files_of_all_kinds(folder: Path, finished: dict[str, Finished]) -> None:
    for name in GOOD:
        assert (finished[name].code, finished[name].err) == (0, ""), name
    images = np.load(folder / "in.npy")
    assert len({(folder / f"{name}.darn").read_bytes() for name in INPUTS}) == 1
    np.testing.assert_array_equal(np.load(folder / "out.npy"), images)
    np.testing.assert_array_equal(np.load(folder / "out.npz")["X"], images)
    np.testing.assert_array_equal(np.loadtxt(folder / "out.csv", delimiter=","), images)
    np.testing.assert_array_equal(np.load(folder / "part.npy"), images[200:270])
    np.testing.assert_array_equal(np.load(folder / "levels_out.npy"), np.load(folder / "levels.npy"))
    assert not list(folder.glob(".tmp-*"))


def test_a_table_becomes_the_bits_that_the_model_was_trained_on(folder: Path, finished: dict[str, Finished]) -> None:
    """Whatever the order of its columns; the restored bits are not a table, and are encoded as they are."""
    assert finished["bits again"].code == 0
    table = pd.read_csv(folder / "shop.csv").iloc[:9]
    expected = [table["paid"] == "yes", *(table["kind"] == kind for kind in ("ale", "bun", "cod")), np.ones(9)]
    np.testing.assert_array_equal(np.loadtxt(folder / "shop_bits.csv", delimiter=","), np.stack(expected, axis=1))
    assert (folder / "again.darn").read_bytes() == (folder / "shop.darn").read_bytes()


def test_what_is_printed(folder: Path, finished: dict[str, Finished]) -> None:
    assert "checked" in finished["part"].out
    assert "20 images of 64 bits" in finished["digits"].out
    for name in ("description length", "raw", "zlib", "bz2", "lzma", "from the description length"):
        assert name in finished["lengths"].out
    report = json.loads((folder / "report.json").read_text())
    assert report["bytes"] == (folder / "x.darn").stat().st_size
    assert report["bits_per_image"]["file"] == pytest.approx(8 * report["bytes"] / N)
    # a small file: header, 40 bits of the state and no more than what the draws of h make uncertain
    assert 0 < N * (report["bits_per_image"]["file"] - report["bits_per_image"]["description length"]) < 600


@pytest.mark.parametrize("message", BAD)
def test_bad_input(folder: Path, finished: dict[str, Finished], message: str) -> None:
    assert finished
    done = call(folder, BAD[message])
    assert done.code == 2, done
    assert message in done.err
    if "Unknown" not in message:  # absl adds a line with the nearest known flag
        assert done.err.count("\n") == 1
    assert done.err.startswith(SCRIPT)
    assert ": error: " in done.err
    assert (folder / "kept.npy").read_bytes() == b"kept"
    assert not (folder / "y.darn").exists()


def test_a_chain_codes_in_its_own_order(tmp_path: Path) -> None:
    """A density.npz that is a chain gives the rows back; a mixture is refused."""
    x = np.random.default_rng(0).integers(0, 2, (60, 5))
    x[:, 1] = x[:, 3]
    chain = fit_chain(x, 1.0, order=[3, 0, 4, 1, 2])
    save_density(chain, tmp_path / "density.npz")
    np.save(tmp_path / "x.npy", x)
    coding = ["encode", "--model=density.npz", "--input=x.npy", "--output=x.darn", "--check"]
    done = call(tmp_path, coding)
    assert done.code == 0, done.err
    assert "checked: " in done.out
    done = call(tmp_path, ["decode", "--model=density.npz", "--input=x.darn", "--output=back.npy"])
    assert done.code == 0, done.err
    np.testing.assert_array_equal(np.load(tmp_path / "back.npy"), x)
    save_density(Mixture((chain, chain), np.log([0.5, 0.5])), tmp_path / "density.npz")
    done = call(tmp_path, coding)
    assert done.code == 2
    assert "--model must be a DARN or a chain, got a Mixture" in done.err

"""Files from strangers: whatever their bytes are, they are loaded or refused in one line, at a cost like their length.

HOSTILE_MUTANTS=1000 tries that many mutants of each kind in place of those of every day.
"""

import binascii
import json
import os
import random
import resource
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gpflow
import keras
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import tensorflow as tf
import tensorflow_probability as tfp

import ebp
from compression import load_bcz
from compression.files.coding.kernel_coding import Reader
from compression.files.container import coded_variables, kernels_of, save_bcz
from compression.files.random_codes.random_coding import RandomCode
from compression.files.weights_file import pack_weights, read_weights
from compression.rounding.bits import fixed_point
from compression.rounding.codebook import codebook
from darn import (
    DARN,
    DARNConfig,
    Mixture,
    as_categories,
    fit_chain,
    load_darn,
    load_density,
    save_darn,
    save_density,
)
from darn.codec.coding import decode, encode, read_header
from darn.codec.integer_model import IntegerModel
from darn.codec.table import decode_table
from darn.codec.table import encode_table as encode_rows
from ebp.estimators.predictor import Predictor
from ebp.packed.export import Weights, export_packed
from gpflow_deep import DeepGP, SVGPLayer
from gpflow_deep.files.serialization import load_model, save_model
from gpflow_deep_base.storage import frame
from gpflow_deep_base.storage.frame import leb128
from gpflow_deep_runs.data.density.bits import read_bits
from gpflow_deep_runs.data.files.arrays import read_rows
from gpflow_deep_runs.data.files.documents import read_documents
from gpflow_deep_runs.data.files.sources import read_source
from gpflow_deep_runs.data.table.spec import TableSpec
from gpflow_deep_runs.data.tables import encode_table
from rbm_tracking import RBM
from rbm_tracking.model.serialization import SavedRBM, load_rbm, save_rbm
from tests.hostile import changed_bytes, changed_json, resealed, with_checksum, zip_bomb, zip_structure

Change = Callable[[bytes, random.Random], bytes]

NUM_MUTANTS = int(os.environ.get("HOSTILE_MUTANTS", "0"))
SECONDS = 10.0
"""CPU time of one mutant; ten times what is promised, for slow machines."""
FREE_MEGABYTES = 100 + 250
"""What is promised besides three times the length, and what TensorFlow and the allocator keep."""
VISIBLE = 8


class Format(NamedTuple):
    """How a kind of file is made, read and attacked."""

    suffix: str
    write: Callable[[Path], Any]
    read: Callable[[Path], Any]
    changes: dict[str, Change]


def _model(path: Path) -> None:
    """With a prior, and a transform that is rebuilt."""
    kernel = gpflow.kernels.Matern32()
    kernel.lengthscales.prior = tfp.distributions.LogNormal(np.zeros([]), np.ones([]))
    kernel.variance = gpflow.Parameter(1.0, transform=tfp.bijectors.SoftClip(np.full([], 0.1), np.full([], 9.0)))
    layer = SVGPLayer(kernel, np.linspace(0.0, 1.0, 12).reshape(4, 3))
    save_model(DeepGP([layer], gpflow.likelihoods.Gaussian(), num_predict_samples=3), path)


def _darn(path: Path) -> None:
    save_darn(DARN(DARNConfig(visible=VISIBLE, hidden=(4,))), path)


def _density(path: Path) -> None:
    """A chain with a category, and a DARN."""
    x = np.eye(VISIBLE, dtype=int)[np.random.default_rng(0).integers(0, VISIBLE, 50)]
    chain = fit_chain(x, 1.0, categories=as_categories([(0, 1, 2)], x))
    save_density(Mixture((chain, DARN(DARNConfig(visible=VISIBLE, hidden=(4,)))), np.log([0.5, 0.5])), path)


def _rbm(path: Path) -> None:
    rng = np.random.default_rng(0)
    rbm = RBM(*(tf.constant(rng.normal(size=shape), tf.float32) for shape in ((3, 4), (4,), (3,))))
    save_rbm(SavedRBM(rbm, 1.0, 0.1, np.linspace(0.0, 1.0, 5).astype(np.float32), 7), path)


def _ebp(path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    ebp.export_network(ebp.EBPClassifier(hidden=(6,), epochs=1).fit(X, (X[:, 0] > 0).astype(int)), path)


def _bcz(path: Path) -> None:
    layers = [keras.layers.Conv2D(4, 3, activation="relu"), keras.layers.Flatten(), keras.layers.Dense(3)]
    network = keras.Sequential([keras.Input([8, 8, 1]), *layers])
    save_bcz(network, path, [codebook(np.asarray(kernel), 4) for kernel in kernels_of(network)])


def _bcz_graph(path: Path) -> None:
    inputs = keras.Input([5, 3])
    hidden = keras.layers.LayerNormalization()(keras.layers.LSTM(4)(inputs))
    hidden = keras.layers.Add()([hidden, keras.layers.Dense(4, "relu")(hidden)])
    hidden = keras.ops.mean(keras.layers.TimeDistributed(keras.layers.Dense(3))(hidden[:, None, ::-1] / 2.0), axis=1)
    network = keras.Model(inputs, keras.layers.Dense(2)(hidden))
    save_bcz(network, path, [fixed_point(np.asarray(kernel), 5) for kernel in kernels_of(network)], biases=6)


def _bcz_weights(path: Path) -> None:
    layers = [keras.layers.Dense(16), keras.layers.BatchNormalization(), keras.layers.Dense(3, dtype="bfloat16")]
    pack_weights(keras.Sequential([keras.Input([12]), *layers]), path, bits=6)


def _bcz_random(path: Path) -> None:
    network = keras.Sequential([keras.Input([12]), keras.layers.Dense(16, "relu"), keras.layers.Dense(3)])
    shapes = tuple(tuple(variable.shape) for variable in coded_variables(network))
    ones = (1,) * len(shapes)
    save_bcz(network, path, RandomCode(5, 9, ones, ones, np.arange(20), shapes))


def _bcz_text(content: bytes, draw: random.Random) -> bytes:
    """Another text of layers before the same numbers."""
    reader = Reader(content[10:])
    packed = reader.take(reader.integer())
    text = json.dumps(changed_json(json.loads(zlib.decompress(packed)), draw)).encode()
    if draw.random() < 0.2:
        text = text.replace(b"1", draw.choice((b"1e400", b"NaN", b"-1", b"999999999", b"0")), draw.randrange(1, 3))
    packed = zlib.compress(text, 9)
    payload = content[9:10] + leb128(len(packed)) + packed + content[10 + reader.place :]
    return content[:5] + _crc32(payload) + payload


_CODER: list[IntegerModel] = []


def _coder() -> IntegerModel:
    if not _CODER:
        _CODER.append(IntegerModel(DARN(DARNConfig(visible=VISIBLE, hidden=(4,)))))
    return _CODER[0]


def _coded(path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 2, (40, VISIBLE))
    path.write_bytes(encode(_coder(), images))


def _coded_anew(content: bytes, draw: random.Random) -> bytes:
    """Another number of images, another growth or other code, with its CRC-16."""
    head_end = read_header(content).code_start - 2
    head = changed_bytes(content[:head_end], draw, first=4) if draw.random() < 0.5 else content[:head_end]
    code = content[head_end + 2 :] if draw.random() < 0.5 else changed_bytes(content[head_end + 2 :], draw)
    return head + binascii.crc_hqx(code, binascii.crc_hqx(head, 0xFFFF)).to_bytes(2, "little") + code


def _coded_table(path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 4, (300, 4))
    path.write_bytes(encode_rows(b"a,b,c,d\n" + b"".join(b"%d,%d,%d,x%d\n" % (*row,) for row in rows)))


def _table(path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(path, X=rng.normal(size=(30, 3)), y=rng.normal(size=30))


def _bits(path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(path, train=rng.integers(0, 2, (30, 8)).astype(np.uint8), test=rng.integers(0, 2, (9, 8)).astype(np.uint8))


def _sparse(path: Path) -> None:
    X = scipy.sparse.random(30, 9, 0.3, "csr", random_state=0)
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    np.savez(path, labels=np.arange(30) % 2, **parts)


def _predictor(path: Path) -> None:
    coding = ebp.InputCoding.fit("zscore", np.random.default_rng(0).normal(size=(9, 5)))
    Predictor(ebp.EBPNetwork((5, 6, 1), "binary", head="binary"), coding, ("no", "yes")).save(path)


def _frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    kinds = rng.choice(["flat", "house"], 30)
    return pd.DataFrame({"area": rng.normal(size=30).round(3), "kind": kinds, "sold": rng.integers(0, 9, 30)})


def _all_columns(path: Path) -> Any:
    spec = TableSpec(missing="impute", rare=2, keep_value=("0",))
    return encode_table(read_source(path), (), spec)


def _ebp_header(content: bytes, draw: random.Random) -> bytes:
    """Another header before the same numbers."""
    reader = frame.Reader(content, 13)
    header = json.dumps(changed_json(json.loads(reader.take(reader.integer())), draw)).encode()
    return frame.framed(content[:8], content[8], frame.leb128(len(header)) + header + content[reader.place :])


def _crc32(payload: bytes) -> bytes:
    return zlib.crc32(payload).to_bytes(4, "little")


_CONTAINER: dict[str, Change] = {
    "bytes": changed_bytes,
    "resealed": resealed,
    "structure": zip_structure,
    "bomb": zip_bomb,
}
_NPZ: dict[str, Change] = {"bytes": changed_bytes, "structure": zip_structure, "bomb": zip_bomb}

FORMATS = {
    "deep GP": Format(".npz", _model, load_model, _CONTAINER),
    "DARN": Format(".npz", _darn, load_darn, _CONTAINER),
    "density": Format(".npz", _density, load_density, _CONTAINER),
    "RBM": Format(".npz", _rbm, load_rbm, _CONTAINER),
    "EBP": Format(
        ".ebp",
        _ebp,
        ebp.PackedNetwork.load,
        {"bytes": changed_bytes, "resealed": with_checksum(9, _crc32), "structure": _ebp_header},
    ),
    "compressed network": Format(
        ".bcz", _bcz, load_bcz, {"bytes": changed_bytes, "resealed": with_checksum(5, _crc32)}
    ),
    "compressed graph": Format(
        ".bcz",
        _bcz_graph,
        load_bcz,
        {"resealed": with_checksum(5, _crc32), "structure": _bcz_text},
    ),
    "compressed weights": Format(
        ".bcz", _bcz_weights, read_weights, {"bytes": changed_bytes, "resealed": with_checksum(5, _crc32)}
    ),
    "compressed network by draws": Format(
        ".bcz", _bcz_random, load_bcz, {"bytes": changed_bytes, "resealed": with_checksum(5, _crc32)}
    ),
    "coded bits": Format(
        ".darn",
        _coded,
        lambda path: decode(_coder(), path.read_bytes()),
        {"bytes": changed_bytes, "resealed": _coded_anew},
    ),
    "coded table": Format(
        ".gdt",
        _coded_table,
        lambda path: decode_table(path.read_bytes()),
        {"bytes": changed_bytes, "resealed": with_checksum(5, _crc32)},
    ),
    "table": Format(".npz", _table, read_source, _NPZ),
    "table of text": Format(
        ".csv", lambda path: _frame().to_csv(path, index=False), _all_columns, {"bytes": changed_bytes}
    ),
    "Parquet": Format(".parquet", lambda path: _frame().to_parquet(path), _all_columns, {"bytes": changed_bytes}),
    "Feather": Format(".feather", lambda path: _frame().to_feather(path), _all_columns, {"bytes": changed_bytes}),
    "Stata": Format(".dta", lambda path: _frame().to_stata(path), _all_columns, {"bytes": changed_bytes}),
    "JSON": Format(".json", lambda path: _frame().to_json(path), _all_columns, {"bytes": changed_bytes}),
    "rows": Format(".npz", _table, lambda path: read_rows(path, "X"), _NPZ),
    "rows of one array": Format(
        ".npy", lambda path: np.save(path, np.ones((9, 4))), read_rows, {"bytes": changed_bytes}
    ),
    "sparse matrix": Format(".npz", _sparse, read_documents, _NPZ),
    "EBP network": Format(".npz", _predictor, Predictor.load, _CONTAINER),
    "table of bits": Format(".npz", _bits, read_bits, _NPZ),
}
OWN = ("deep GP", "DARN", "density", "RBM", "EBP", "compressed network", "compressed weights", "EBP network")
SAVERS = {name: FORMATS[name].write for name in OWN} | {
    "EBP weights": lambda path: export_packed(Weights([np.ones((3, 1))], [None]), path)
}
KINDS = [(name, kind) for name, each in FORMATS.items() for kind in each.changes]


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    """The bytes of a whole file of a format."""
    contents: dict[str, bytes] = {}

    def content(name: str) -> bytes:
        if name not in contents:
            path = tmp_path_factory.mktemp("whole") / f"file{FORMATS[name].suffix}"
            FORMATS[name].write(path)
            FORMATS[name].read(path)
            contents[name] = path.read_bytes()
        return contents[name]

    return content


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_a_file_from_a_stranger(
    name: str, kind: str, whole: Callable[[str], bytes], tmp_path: Path, rng: np.random.Generator
) -> None:
    """Each mutant is loaded, or refused in one line that names no error of the system."""
    content = whole(name)
    form = FORMATS[name]
    count = 1 if kind == "bomb" else NUM_MUTANTS or -(-100 // len(form.changes))
    draw = random.Random(int(rng.integers(2**31)))
    path = tmp_path / f"mutant{form.suffix}"
    raw: list[str] = []
    for number in range(count):
        mutant = form.changes[kind](content, draw)
        path.write_bytes(mutant)
        before, start = _peak_megabytes(), time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                form.read(path)
            if kind == "bomb":
                raw.append("a bomb was read")
        except (ValueError, OSError) as error:
            if "\n" in str(error) or not str(error):
                raw.append(f"{number}: {error!r}")
        except Exception as error:
            raw.append(f"{number}: {error!r}"[:300])
        assert time.process_time() - start < SECONDS, f"mutant {number}"
        assert _peak_megabytes() - before < FREE_MEGABYTES + 3 * len(mutant) / 1e6, f"mutant {number}"
    assert not raw, f"{len(raw)} of {count}: {raw[:3]}"


@pytest.mark.parametrize("name", SAVERS)
def test_a_file_is_written_whole_or_not_at_all(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full when what was written has to be on it: the old file stays, and nothing is beside it."""
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def no_space(descriptor: int) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        SAVERS[name](path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", SAVERS)
def test_a_file_goes_into_the_home_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And comes from there, where a shell has not expanded "~", as in --output=~/x: not into a folder of that name."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    SAVERS[name](Path("~/models/file"))
    assert [path.name for path in (tmp_path / "home" / "models").iterdir()] == ["file"]
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    if name in FORMATS:
        FORMATS[name].read(Path("~/models/file"))

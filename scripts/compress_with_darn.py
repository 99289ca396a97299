#!/usr/bin/env python3
"""Compress binary data without loss by a model that train_darn.py trained, and restore them.

    compress_with_darn.py encode --model=runs/mnist --input=images.npy --output=images.darn --check
    compress_with_darn.py encode --model=runs/mnist --dataset=binarized_mnist --data_dir=DATA --output=test.darn
    compress_with_darn.py decode --model=runs/mnist --input=images.darn --output=restored.npy

--model is the run's folder or a darn.npz. Input: .npy or .csv[.gz] [N, n_x] of zeros and ones, or .npz with one of X,
train, valid and test (chosen by --part; packed bits are recognised by `n_features`). Restored data are written as .npy,
.npz (array X) or .csv. The file can only be restored with the same model, which it does not hold.

Prints bits per image of the file, of the model's expected description length, and of zlib, bz2 and lzma on the packed
bits.
"""

import bz2
import importlib.util
import lzma
import os
import sys
import time
import zipfile
import zlib
from pathlib import Path

if importlib.util.find_spec("darn") is None:  # run from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from experiment import files
from experiment.data import views
from experiment.files import atomic_path, write_json
from experiment.flags import apply_threads
from experiment.script import run_program
from experiment.seeds import named_seed

import numpy as np
from absl import app, flags
from darn import coding
from darn.description_length import description_length
from darn.integer_model import IntegerModel
from darn.model import DARN
from darn.serialization import load_darn

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Folder of a run of train_darn.py, or the file of a model.", required=True)
flags.DEFINE_string("input", None, "File to encode or decode.")
flags.DEFINE_string("output", None, "File to write; it is replaced if it exists.")
flags.DEFINE_string("dataset", None, "Encode a known data set in place of --input.")
flags.DEFINE_string("data_dir", None, "Folder with the files of the known data sets.")
flags.DEFINE_enum("part", None, ["X", "train", "valid", "test"], "Which array of an .npz file or part of --dataset.")
flags.DEFINE_integer("rows", None, "Encode only the first rows.", 1)
flags.DEFINE_boolean("check", False, "After encoding, decode the file and compare.")
flags.DEFINE_integer("length_samples", 1, "Draws of h for the expected description length; 0 for none.", 0)
flags.DEFINE_integer("seed", 0, "Seed of those draws. The file depends on no seed.")
flags.DEFINE_integer("batch_size", 1024, "Images computed at a time; the file does not depend on it.", 1)
flags.DEFINE_enum("engine", "auto", ["auto", "numba", "numpy"], "The file does not depend on it, the time does.")
flags.DEFINE_string("report", None, "Also write the figures of encode to this JSON file.")
flags.DEFINE_integer("threads", 0, "CPU threads of TensorFlow; 0 lets it choose.", 0)
flags.mark_flag_as_required("output")
flags.mark_flags_as_mutual_exclusive(["input", "dataset"], required=True)

OUTPUTS = (".npy", ".npz", ".csv")


def load_model(path: Path) -> DARN:
    """The model of a run or a file."""
    if path.is_dir():
        if not (path / "darn.npz").is_file():
            raise ValueError(f"--model={path} holds no darn.npz: the run has not ended; continue its training.")
        path = path / "darn.npz"
    if not path.is_file():
        raise ValueError(f"--model must be a run's folder or a file, but there is nothing at {path}; check the path.")
    return load_darn(path)


def read_bits() -> np.ndarray:
    """The data to encode, [N, n_x]; the codec checks their values."""
    if FLAGS.dataset is not None:
        data = views.load(views.Source(dataset=FLAGS.dataset, data_dir=FLAGS.data_dir), "binary")
        part = FLAGS.part or "test"
        if part == "X":
            raise ValueError("--part of a --dataset must be train, valid or test, got X.")
        return np.asarray(data.parts[part].X)
    path = Path(FLAGS.input)
    if not path.is_file():
        raise ValueError(f"--input must be a file, but there is none at {path}; check the path.")
    suffix = path.name.removesuffix(".gz").rsplit(".", 1)[-1].lower()
    if FLAGS.part is not None and suffix != "npz":
        raise ValueError(f"--part chooses an array of an .npz file or of a --dataset, got --input={path}.")
    try:
        if suffix == "npy":
            return np.load(path, allow_pickle=False)
        if suffix == "csv":
            return read_csv(path)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as zeros and ones ({error}); write it again.") from error
    if suffix == "npz":
        return read_npz(path)
    raise ValueError(f"--input must end in .npy, .npz, .csv or .csv.gz, got {path}.")


def read_csv(path: Path) -> np.ndarray:
    """Rows of numbers, perhaps below a line of names."""
    try:
        return np.loadtxt(path, delimiter=",", ndmin=2)
    except ValueError:
        return np.loadtxt(path, delimiter=",", ndmin=2, skiprows=1)


def read_npz(path: Path) -> np.ndarray:
    arrays = files.read_npz(path)
    found = [name for name in ("X", "train", "valid", "test") if name in arrays]
    wanted = [FLAGS.part] if FLAGS.part else found
    if len(wanted) != 1 or wanted[0] not in arrays:
        raise ValueError(f"{path} holds {', '.join(found) or 'none of X, train, valid, test'}; say which with --part.")
    rows = arrays[wanted[0]]
    if "n_features" in arrays:
        rows = np.unpackbits(rows.astype(np.uint8), axis=1)[:, : int(arrays["n_features"])]
    return rows


def write_bits(path: Path, rows: np.ndarray) -> None:
    with atomic_path(path) as temporary:
        if path.suffix == ".npy":
            np.save(temporary, rows)
        elif path.suffix == ".npz":
            np.savez_compressed(temporary, X=rows)
        else:
            np.savetxt(temporary, rows, fmt="%d", delimiter=",")


def encode(model: DARN, output: Path) -> None:
    images = read_bits()[: FLAGS.rows]
    integer = IntegerModel(model)
    start = time.perf_counter()
    data = coding.encode(integer, images, batch_size=FLAGS.batch_size, engine=FLAGS.engine)
    seconds = time.perf_counter() - start
    with atomic_path(output) as temporary:
        temporary.write_bytes(data)
    N, width = images.shape
    packed = np.packbits(images.astype(np.uint8), axis=1).tobytes()
    bits: dict[str, float] = {"file": 8 * len(data) / N}
    if FLAGS.length_samples:
        seed = named_seed(FLAGS.seed, "description_length")
        lengths = description_length(model, images, seed=seed, num_samples=FLAGS.length_samples, unit="bits")
        bits["description length"] = float(lengths.total.mean())
    bits["raw"] = float(width)
    bits["zlib"] = 8 * len(zlib.compress(packed, 9)) / N
    bits["bz2"] = 8 * len(bz2.compress(packed, 9)) / N
    bits["lzma"] = 8 * len(lzma.compress(packed, preset=9 | lzma.PRESET_EXTREME)) / N
    print(f"{output}: {len(data)} bytes for {N} images of {width} bits; {1e3 * seconds / N:.4f} ms an image")
    for name, value in bits.items():
        print(f"{name:>20}: {value:9.3f} bits an image, {100 * value / width:6.2f} % of raw")
    if "description length" in bits:
        print(f"the file is {100 * (bits['file'] / bits['description length'] - 1):+.3f} % from the description length")
    if FLAGS.check:
        start = time.perf_counter()
        restored = coding.decode(integer, output.read_bytes(), batch_size=FLAGS.batch_size, engine=FLAGS.engine)
        if not np.array_equal(restored, images):
            raise ValueError(f"{output} does not restore the data; please report this with the model.")
        print(f"checked: {1e3 * (time.perf_counter() - start) / N:.4f} ms an image to decode")
    if FLAGS.report:
        figures = {"images": N, "width": width, "bytes": len(data), "bits_per_image": bits, "encode_seconds": seconds}
        write_json(FLAGS.report, figures)


def decode(model: DARN, output: Path) -> None:
    if FLAGS.input is None:
        raise ValueError("decode needs --input, the file to decode.")
    if output.suffix not in OUTPUTS:
        raise ValueError(f"--output must end in {', '.join(OUTPUTS)}, got {output}.")
    data = Path(FLAGS.input).read_bytes()
    coding.read_header(data)  # its errors before the time that the model takes
    rows = coding.decode(model, data, batch_size=FLAGS.batch_size, engine=FLAGS.engine)
    write_bits(output, rows)
    print(f"{output}: {len(rows)} images of {rows.shape[1]} bits")


def run(command: list[str]) -> None:
    if command not in (["encode"], ["decode"]):
        raise ValueError(f"say encode or decode, and flags, --name=value; got {command}; see --help.")
    apply_threads(FLAGS.threads)
    model = load_model(Path(FLAGS.model).expanduser())
    (encode if command == ["encode"] else decode)(model, Path(FLAGS.output))


def explain(error: Exception) -> tuple[str, int] | None:
    return (str(error), 2) if isinstance(error, zipfile.BadZipFile) else None


def main(argv: list[str]) -> int:
    return run_program(argv[:1], lambda: run(argv[1:]), explain)


if __name__ == "__main__":
    app.run(main)

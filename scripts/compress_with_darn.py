#!/usr/bin/env python3
"""Compress binary data by a model that gpflow-deep darn trained, and restore them.

    gpflow-deep codec encode --model=runs/mnist --input=images.npy --output=images.darn --check
    gpflow-deep codec encode --model=runs/mnist --dataset=binarized_mnist --data_dir=DATA --output=test.darn
    gpflow-deep codec decode --model=runs/mnist --input=images.darn --output=restored.npy

A table itself, whatever its columns, quotes and line ends, needs no model: `gpflow-deep compress table.csv`.

--model is the run's folder, a darn.npz, or a density.npz that is a chain. Input: .npy or .csv[.gz] [N, n_x] of zeros
and ones, or .npz with one of X, train, valid and test (chosen by --part; packed bits are recognised by `n_features`);
or, if --model is the folder of a run on a table, any table with its columns, which become the same bits. Restored
data are these bits, written as .npy, .npz (array X) or .csv, and not the table: encode says so, and
how long bz2 and lzma of the table are. The file can only be restored with the same model, which it does not hold.

Prints bits per image of the file, of the model's expected description length, and of zlib, bz2 and lzma on the packed
bits.
"""

import bz2
import functools
import lzma
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gpflow_deep_runs.early  # noqa: F401 (what is wrong is said before TensorFlow starts)
from gpflow_deep_runs import cli
from gpflow_deep_runs.cli.flags import at_least, group
from gpflow_deep_runs.data import tables, views
from gpflow_deep_runs.data.density import planes
from gpflow_deep_runs.data.density.bits import read_alike
from gpflow_deep_runs.data.files import arrays
from gpflow_deep_runs.run import Devices, Seeds

import numpy as np
from darn import DARN, Chain, IntegerModel, load_darn, load_density
from darn.codec import coding, rates
from gpflow_deep_base.files import atomic_path, write_json
from gpflow_deep_base.text import aligned


@dataclass(frozen=True)
class Codec:
    """Which model, and how it is used.

    :param model: folder of a run of gpflow-deep darn, or the file of a model: darn.npz, or a density.npz that is a
        chain.
    :param output: file to write; it is replaced if it exists.
    :param batch_size: images computed at a time; the file does not depend on it.
    :param bit_planes: data are grey levels, as many bits a pixel as the model was trained with.
    """

    model: str
    output: str
    batch_size: int = 1024
    bit_planes: int | None = None

    def __post_init__(self) -> None:
        at_least(self, {"batch_size": 1, "bit_planes": 1})

    def load(self) -> DARN | Chain:
        """The model of a run or a file."""
        # The folder of a run holds a DARN; a file may be a chain, too.
        path = Path(self.model).expanduser()
        path = path / "darn.npz" if path.is_dir() else path
        if not path.is_file():
            raise ValueError(f"--model must be a file, or the folder of a run that has ended; there is no {path}.")
        try:
            return load_darn(path)
        except ValueError as error:
            try:
                model = load_density(path)
            except ValueError:
                raise error from None
        if not isinstance(model, DARN | Chain):
            kind = type(model).__name__
            raise ValueError(f"--model must be a DARN or a chain, got a {kind} in {path}; give the run's darn.npz.")
        return model

    @property
    def schema(self) -> tables.Schema | None:
        """How the columns of the table were read that the model was trained on; None if it was no table."""
        path = Path(self.model).expanduser() / "columns.json"
        return tables.load_schema(path) if path.is_file() else None


@dataclass(frozen=True)
class Encode:
    """Compress binary data without loss by a model that gpflow-deep darn trained.

    :param input: file with the data: .npy, .npz, .csv or .csv.gz, or a table as in training; in place of --dataset.
    :param part: which array of an .npz file, or which part of --dataset; test if this is not given.
    :param rows: encode only the first rows; all if this is not given.
    :param check: decode the file again, and compare.
    :param length_samples: draws of h for the expected description length; 0 for none.
    :param seed: seed of those draws; the file depends on no seed.
    :param report: also write the figures to this JSON file.
    """

    codec: Codec = group()
    devices: Devices = group(omit=("strategy", "replicas"))
    source: views.Source = group(omit=("data",))
    table: tables.NewRows = group()
    input: str | None = None
    part: Literal["X", "train", "valid", "test"] | None = None
    rows: int | None = None
    check: bool = False
    length_samples: int = 1
    seed: int = 0
    report: str | None = None

    def __post_init__(self) -> None:
        if (self.input is None) == (self.source.dataset is None):
            raise ValueError(f"give --input or --dataset, one of them, got {self.input!r} and {self.source.dataset!r}.")
        at_least(self, {"rows": 1})
        if self.length_samples < 0:
            raise ValueError(f"--length_samples must not be negative, got {self.length_samples}.")

    @property
    def is_table(self) -> bool:
        """Whether the input is a table whose columns become bits."""
        return self.input is not None and self.codec.schema is not None and arrays.has_names(self.input)

    def read(self) -> np.ndarray:
        """The data to encode, [N, n_x]; the codec checks their values."""
        # Own data: a table with the columns of training, or rows of bits or grey levels.
        if self.input is not None:
            if (schema := self.codec.schema) is not None and arrays.has_names(self.input):
                return read_alike(self.input, schema, self.table)[: self.rows]
            rows = arrays.read_rows(self.input, self.part)[: self.rows]
            return planes.to_planes(rows, num) if (num := self.codec.bit_planes) else rows
        # A data set: one of its parts.
        if self.part == "X":
            raise ValueError("--part of a --dataset must be train, valid or test, got X.")
        data = views.load(self.source, "grey" if self.codec.bit_planes else "binary")
        data = planes.in_planes(data, self.codec.bit_planes) if self.codec.bit_planes else data
        return np.asarray(data.parts[self.part or "test"].X)[: self.rows]


@dataclass(frozen=True)
class Decode:
    """Restore the data from a file that `encode` wrote.

    :param input: file to decode.
    """

    input: str
    codec: Codec = group()
    devices: Devices = group(omit=("strategy", "replicas"))

    def __post_init__(self) -> None:
        if Path(self.codec.output).suffix not in arrays.WRITTEN:
            raise ValueError(f"--output must end in {', '.join(arrays.WRITTEN)}, got {self.codec.output}.")


def _packed_lengths(path: Path) -> str:
    """Bytes of a file as it is, and of its bytes by compressors that need nothing beside what they write."""
    content = path.read_bytes()
    return f"{len(content)} bytes, bz2 {len(bz2.compress(content))}, lzma {len(lzma.compress(content))}"


def encode(flags: Encode) -> None:
    """Write the file, and print how long it is."""
    flags.devices.prepare()
    model = flags.codec.load()
    images = flags.read()
    output = Path(flags.codec.output)
    codec = flags.codec
    # A chain is coded in its own order of the columns.
    integer = model if isinstance(model, Chain) else IntegerModel(model)
    start = time.perf_counter()
    data = coding.encode(integer, images, batch_size=codec.batch_size)
    seconds = time.perf_counter() - start
    (num_images, width) = images.shape
    with atomic_path(output) as temporary:
        temporary.write_bytes(data)
    # Its length beside the expected description length and the general compressors.
    seed = Seeds(flags.seed)("description_length")
    num_samples = flags.length_samples
    plain, rows = (model.as_darn(), images[:, model.order]) if isinstance(model, Chain) else (model, images)
    bits = rates.bits_per_image(rows, data, model=plain, seed=seed, num_samples=num_samples)
    per_image = f"{1e3 * seconds / num_images:.4f} ms an image"
    print(f"{output}: {len(data)} bytes for {num_images} images of {width} bits; {per_image}")
    print("\n".join([aligned(rates.table(bits)), *rates.notes(bits)]))
    if flags.is_table:
        print(f"{NO_TABLE} {flags.input} itself: {_packed_lengths(Path(str(flags.input)))}.")
    # Decode the file as it is on the disk.
    if flags.check:
        start = time.perf_counter()
        restored = coding.decode(integer, output.read_bytes(), batch_size=codec.batch_size)
        if not np.array_equal(restored, images):
            raise ValueError(f"{output} does not restore the data; please report this with the model.")
        print(f"checked: {1e3 * (time.perf_counter() - start) / num_images:.4f} ms an image to decode")
    if flags.report is not None:
        figures = {"images": num_images, "width": width, "bytes": len(data), "bits_per_image": bits}
        write_json(flags.report, {**figures, "encode_seconds": seconds})


def decode(flags: Decode) -> None:
    """Write the data that a file holds."""
    flags.devices.prepare()
    data = Path(flags.input).read_bytes()
    coding.read_header(data)  # its errors before the time that the model takes
    rows = coding.decode(flags.codec.load(), data, batch_size=flags.codec.batch_size)
    levels = planes.from_planes(rows, flags.codec.bit_planes) if flags.codec.bit_planes else rows
    arrays.write_rows(flags.codec.output, levels)
    print(f"{flags.codec.output}: {len(rows)} images of {rows.shape[1]} bits")


NO_TABLE = (
    "decode restores these bits and not the table: columns.json says which bit is which level, but columns that were "
    "left out, levels that were joined (--rare), missing values that were filled in (--missing=impute), the order of "
    "the columns and the format of the cells are gone. `gpflow-deep compress FILE` keeps the table itself; zlib, bz2 "
    "and lzma above are of the bits, and of"
)

COMMANDS: dict[str, Callable[[Any], None]] = {"encode": encode, "decode": decode}
command = functools.partial(cli.run, COMMANDS)

if __name__ == "__main__":
    command()

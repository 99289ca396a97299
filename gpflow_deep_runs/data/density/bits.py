"""Zeros and ones for density models: their checks, and a user's own table of them.

data = read_bits("shop.csv")                        # parts that the file does not have are drawn
data.train.X, data.feature_names, data.image_shape
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from absl import logging
from numpy.typing import NDArray

from gpflow_deep_base.numbers.bins import Bins
from gpflow_deep_base.seeds import numpy_rng
from gpflow_deep_base.storage.container import read_npz
from gpflow_deep_runs.data import tables
from gpflow_deep_runs.data.files.sources import decoded_texts, read_source
from gpflow_deep_runs.data.rows import Part, Rows
from gpflow_deep_runs.data.table.features import Feature
from gpflow_deep_runs.data.table.schema import Schema
from gpflow_deep_runs.data.table.spec import NewRows, TableSpec
from gpflow_deep_runs.data.values.cells import quoted

__all__ = ["PARTS", "Bits", "as_bits", "categories", "constant_columns", "density", "read_alike", "read_bits"]
__all__ += ["unpacked"]

Bits = NDArray[np.uint8]

PARTS = ("train", "valid", "test")

_MOMENT = ("day", "hour")
"""Parts of a date that say it all, and are one variable."""


def density(
    name: str,
    parts: Mapping[str, np.ndarray],
    source: str,
    *,
    image_shape: tuple[int, int] | None = None,
    feature_names: Sequence[str] = (),
    labels: Mapping[str, np.ndarray] | None = None,
) -> Rows:
    """A data set of zeros and ones in three parts, checked; warns of columns that do not vary in training.

    :param parts: "train", "valid" and "test": zeros and ones [n, D] each.
    :param image_shape: height and width if a row is an image, row by row.
    :param feature_names: D names; () stands for "x0", "x1", ...
    :param labels: class of each row of each part [n], for looking at what a model has learned.
    :raises ValueError: if a part is empty, is not 0 or 1, or has another number of columns.
    """
    D = parts["train"].shape[-1]
    names = tuple(feature_names) or tuple(f"x{d}" for d in range(D))
    if len(names) != D:
        raise ValueError(f"{name!r} must have {D} column names, got {len(names)}.")
    # Each part must hold zeros and ones in D columns; the checksum is that of all parts.
    checked_parts: dict[str, Part] = {}
    digest = hashlib.sha256()
    for part in PARTS:
        rows = parts[part]
        subject = f"the {part} part of {name!r}"
        if rows.ndim != 2 or 0 in rows.shape or rows.shape[1] != D:
            raise ValueError(
                f"{subject} must be [N, {D}] with at least one row, got {rows.shape}; check that the file is complete."
            )
        bits = as_bits(rows, names, subject)
        digest.update(f"{bits.shape}".encode() + np.packbits(bits, axis=1).tobytes())
        checked_parts[part] = Part(bits, None if labels is None else labels[part].astype(np.int64)[:, None])
    # A column that does not vary teaches a model nothing: it stays, with a warning.
    constant = constant_columns(checked_parts["train"].X)
    if constant:
        logging.warning(
            "%s: %d of %d columns do not vary in the training part (%s).",
            *(name, len(constant), D, quoted([names[d] for d in constant])),
        )
    return Rows(name, checked_parts, "density", source, digest.hexdigest(), image_shape, names)


def constant_columns(rows: Bits) -> tuple[int, ...]:
    """Columns that are always 0 or always 1."""
    return tuple(int(d) for d in np.flatnonzero(rows.min(axis=0) == rows.max(axis=0)))


def as_bits(rows: np.ndarray, names: Sequence[str], what: str) -> Bits:
    """The rows as uint8.

    :param names: of the columns; () stands for "x0", "x1", ...
    :param what: the rows' name in the error.
    :raises ValueError: naming the first row and column that are not 0 or 1.
    """
    if rows.dtype.kind not in "biuf":
        raise ValueError(f"{what} must be numbers 0 and 1 or true and false, got {rows.dtype}; encode them first.")
    # The first value that is neither names its row and column.
    is_wrong = (rows != 0) & (rows != 1)
    if is_wrong.any():
        row, column = np.argwhere(is_wrong)[0]
        name = names[column] if names else f"x{column}"
        raise ValueError(
            f"{what} must be 0 or 1 everywhere, got {rows[row, column]:g} in row {row} of column {name!r} "
            f"({is_wrong.sum()} such values); leave the column out with --ignore, make a bit of each of its values "
            "with --categorical, or binarise it by a threshold."
        )
    return rows.astype(np.uint8)


def categories(data: Rows) -> tuple[tuple[int, ...], ...]:
    """Columns of the bits that are one variable: of each category, and of each column of bins, that has several."""
    groups = []
    start = 0
    # One variable for all levels or bins of a column; the mark of a missing value is a bit of its own.
    for feature in () if data.schema is None else data.schema.columns:
        width = len(feature.value_names)
        if (feature.column.kind == "category" or feature.bins is not None) and width > 1:
            groups.append(tuple(range(start, start + width)))
        start += len(feature.names)
    return tuple(groups)


def unpacked(rows: np.ndarray, n_features: np.ndarray, path: Path) -> Bits:
    """The inverse of `np.packbits(rows, axis=1)` of `n_features` columns.

    :param path: where they are from, for the error.
    :raises ValueError: if they do not fit each other.
    """
    if n_features.shape != () or n_features.dtype.kind not in "iu" or rows.dtype != np.uint8 or rows.ndim != 2:
        raise ValueError(
            f"{path} has n_features, so its parts must be np.packbits(rows, axis=1), got {rows.dtype} {rows.shape}."
        )
    # The last byte of a row is filled up with zeros.
    if rows.shape[1] != -(-int(n_features) // 8):
        raise ValueError(
            f"{path} has {rows.shape[1]} bytes in each row, which are not {n_features} bits; write it again."
        )
    return np.unpackbits(rows, axis=1)[:, : int(n_features)]


def read_bits(
    path: str | os.PathLike[str],
    spec: TableSpec = TableSpec(),
    *,
    seed: int = 0,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
    bins: int | None = None,
) -> Rows:
    """Read your own zeros and ones from a table or an .npz file.

    Tables hold one row for each example and are read as `tables.read_table` reads them, without a target: zeros and
    ones, and true and false, become one bit, and levels one bit each. The first line of a text may hold names, or be
    data already. An .npz file holds `train` and perhaps `valid` and `test` [n, D], or one matrix `X` [N, D]; packed
    bits are recognised by a number `n_features`. Optional arrays are `feature_names` [D] and `image_shape` [2].

    :param spec: how the columns of a table are read.
    :param seed: decides which rows are set aside for the parts that the file does not have.
    :param valid_fraction: part of the rows for validation, in (0, 1); `test_fraction` likewise.
    :param bins: numbers besides 0 and 1, dates and times become at most so many ordered bins, a bit each; None: they
        are refused.
    :raises ValueError: naming file and column: as `tables.read_table`; numbers besides 0 and 1, dates and times; too
        few rows for the parts.
    """
    path = Path(path)
    for argument, fraction in (("valid_fraction", valid_fraction), ("test_fraction", test_fraction)):
        if not 0 < fraction < 1:
            raise ValueError(f"{argument} must be between 0 and 1, got {fraction}.")
    schema = None
    source = [f"the file {path.name}"]
    image_shape = None
    # The bits: matrices of an .npz file, or the encoded columns of a table.
    if path.suffix.lower() == ".npz" and path.is_file() and path.stat().st_size:
        if spec.given():
            raise ValueError(f"--{spec.given()[0]} is for tables with names of columns, and {path} holds matrices.")
        parts, names, image_shape = _read_npz(path)
        parts = {part: as_bits(rows, names, f"{part} of {path}") for part, rows in parts.items()}
    else:
        X, schema, notes = _read_table(path, spec, bins)
        parts = {"train": X}
        names = schema.feature_names
        source = source + notes
    # Rows for the parts that the file does not have.
    for part, fraction in (("test", test_fraction), ("valid", valid_fraction)):
        if part not in parts:
            parts["train"], parts[part] = _set_aside(parts["train"], fraction, seed, part, path)
            source.append(f"{len(parts[part])} {part} rows drawn with seed {seed}")
    # Where a bit is missing, the most frequent one of the training rows.
    if schema is not None:
        schema = _learned(schema, parts["train"])
        parts = {part: schema.filled(rows).astype(np.uint8) for part, rows in parts.items()}
    data = density(path.name.split(".")[0], parts, "; ".join(source), image_shape=image_shape, feature_names=names)
    return replace(data, schema=schema)


def read_alike(path: str | os.PathLike[str], schema: Schema, new: NewRows = NewRows()) -> Bits:
    """The bits of another table, [N, D], as those of the table that `schema` came from.

    :param new: what differs from training.
    :raises ValueError: as `tables.apply_schema`, and if numbers are not 0 and 1.
    """
    X, _ = tables.apply_schema(schema, path, new)
    return as_bits(X, schema.feature_names, str(path))


def _read_table(path: Path, spec: TableSpec, bins: int | None) -> tuple[NDArray[np.float64], Schema, list[str]]:
    """All rows as zeros and ones, NaN where missing; how they were read, and what is to be said of it."""
    table = read_source(path, names_optional=True, spec=spec)
    # A date that is binned is one number: its day with the hour, or its only part.
    if bins is not None:
        parts = spec.date_parts or _MOMENT
        if len(parts) > 1 and {*parts} != {*_MOMENT}:
            raise ValueError(
                f"--date_parts must be {','.join(_MOMENT)} or one part to be binned, got {','.join(parts)}."
            )
        spec = replace(spec, date_parts=parts)
    encoded = tables.encode_chosen(table, (), spec)
    # Without bins only bits and levels will do.
    wrong = [f.name for f in encoded.schema.columns if f.column.kind in ("date", "time")]
    if wrong and bins is None:
        raise ValueError(
            f"{path} must hold zeros and ones or levels, but {quoted(wrong)} hold dates or times; leave them "
            f"out with --ignore={','.join(wrong)}."
        )
    # Missing values are NaN here, and filled when it is known which rows train.
    gaps = [feature.name for feature in encoded.schema.columns if feature.num_missing]
    notes = [*encoded.notes, *([f"missing values of {quoted(gaps)} are a bit, NAME=missing"] if gaps else [])]
    X, schema = (encoded.X, encoded.schema) if bins is None else _binned(encoded.X, encoded.schema, bins)
    as_bits(np.nan_to_num(X), schema.feature_names, str(path))
    return X, schema, notes


def _binned(X: NDArray[np.float64], schema: Schema, most: int) -> tuple[NDArray[np.float64], Schema]:
    """The rows and how they are read, with bins of numbers that are not all 0 or 1, of dates and of times."""
    features = []
    blocks = []
    start = 0
    for feature in schema.columns:
        block = X[:, start : start + len(feature.names)]
        start += len(feature.names)
        kind = feature.column.kind
        if kind in ("number", "date", "time"):
            width = len(feature.value_names)
            values = feature.moments(block[:, :width])
            # Numbers that are not all 0 or 1 become bins.
            if kind != "number" or not np.isin(values[~np.isnan(values)], (0.0, 1.0)).all():
                bins = Bins.of(values, most, _bin_kind(feature))
                feature = replace(feature, bins=bins)
                block = np.concatenate([bins.levels(values), block[:, width:]], axis=1)
        features.append(feature)
        blocks.append(block)
    return np.concatenate(blocks, axis=1), replace(schema, columns=tuple(features))


def _bin_kind(feature: Feature) -> str:
    """What the numbers of a column are to :meth:`Bins.of`."""
    if feature.column.kind != "date" or "day" in feature.parts:
        return feature.column.kind
    return "time" if feature.parts == ("hour",) else "number"


def _learned(schema: Schema, X: NDArray[np.float64]) -> Schema:
    """What is put in where bits are missing: the most frequent ones of the training rows `X`, of numbers, too."""
    learned = schema.learned(X)
    return replace(learned, fills=tuple(float(fill > 0.5) for fill in learned.fills or ()))


def _set_aside(rows: np.ndarray, fraction: float, seed: int, part: str, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The rows left and those set aside, each in the order of the file."""
    count = round(fraction * len(rows))
    if not 0 < count < len(rows):
        raise ValueError(
            f"{path} has {len(rows)} rows, too few to set {fraction:g} of them aside as {part} rows; add rows, or give "
            "train, valid and test in an .npz file."
        )
    # The rows are drawn by a stream of this part, and keep their order.
    is_taken = np.zeros(len(rows), dtype=bool)
    is_taken[numpy_rng(seed, f"binary_data/{part}").permutation(len(rows))[:count]] = True
    return rows[~is_taken], rows[is_taken]


def _read_npz(path: Path) -> tuple[dict[str, np.ndarray], tuple[str, ...], tuple[int, int] | None]:
    arrays = read_npz(path)
    part_names = [part for part in PARTS if part in arrays]
    known_names = {*PARTS, "X", "n_features", "feature_names", "image_shape"}
    if ("X" in arrays) == ("train" in arrays) or ("X" in arrays and part_names):
        raise ValueError(
            f"{path} must hold train (and perhaps valid and test) [n, D], or one matrix X [N, D], got "
            f"{quoted(sorted(arrays))}; write it again."
        )
    # Labels may stand beside each part.
    extra = sorted(set(arrays) - known_names - {f"{part}_labels" for part in part_names})
    if extra:
        raise ValueError(
            f"{path} may hold {', '.join(sorted(known_names))}, got {quoted(extra)}; leave out the others."
        )
    parts: dict[str, np.ndarray] = (
        {"train": arrays["X"]} if "X" in arrays else {part: arrays[part] for part in part_names}
    )
    if "n_features" in arrays:
        parts = {part: unpacked(rows, arrays["n_features"], path) for part, rows in parts.items()}
    # All parts are matrices of the same columns.
    shapes = {part: rows.shape for part, rows in parts.items()}
    is_matrix = all(len(shape) == 2 and 0 not in shape for shape in shapes.values())
    if not is_matrix or len({shape[1] for shape in shapes.values()}) != 1:
        raise ValueError(f"{path} must hold matrices [n, D] with the same D and at least one row, got {shapes}.")
    D = parts["train"].shape[1]
    names = tuple(f"x{d}" for d in range(D))
    if "feature_names" in arrays:
        names = tuple(map(str, np.ravel(decoded_texts(arrays["feature_names"], f"feature_names in {path}"))))
    return parts, names, _image_shape(arrays, D, path)


def _image_shape(arrays: Mapping[str, np.ndarray], num_pixels: int, path: Path) -> tuple[int, int] | None:
    if "image_shape" not in arrays:
        return None
    sizes = np.ravel(arrays["image_shape"])
    is_whole = sizes.dtype.kind in "iuf" and not (sizes % 1).any()
    if len(sizes) != 2 or not is_whole or np.prod(sizes) != num_pixels:
        raise ValueError(
            f"image_shape in {path} must be two numbers with the product {num_pixels}, got {sizes.tolist()}."
        )
    return int(sizes[0]), int(sizes[1])

"""A user's own table (.csv, .csv.gz, .parquet or .npz) as a `Dataset`, and the same columns again for prediction.

    dataset = read_table("houses.csv", target="price")
    write_json("schema.json", schema_of(dataset).to_json())
    X, Y = apply_schema(TableSchema.from_json(stored), "new_houses.csv")        # Y is None if "price" is not there

Columns of numbers and of true/false become one column of X each. Columns of text become one column of zeros and ones
for each level. The target is a regression target, a binary or a multiclass label, see :func:`read_table`.
"""

import csv
import gzip
import importlib
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiment.data.rows import Dataset, Indices, Rows, Splits, Task, check_finite

__all__ = ["Column", "TableSchema", "apply_schema", "read_npz", "read_table", "schema_of"]

MAX_LEVELS = 50
"""Most levels that a text column may have."""

_MAX_CLASSES = 20
_CLASS_FRACTION = 0.05
_DATE = re.compile(r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})([T\s]+\d{1,2}:\d{2}.*)?\s*")
_READ_ERRORS = (ValueError, EOFError, KeyError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error)


@dataclass(frozen=True)
class Column:
    """A feature column of a table: its name, and its levels if it holds text (None if it holds numbers)."""

    name: str
    levels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class TableSchema:
    """How the columns of a table become X and Y.

    :param columns: the feature columns, in the order of X.
    :param targets: names of the target columns; more than one only in regression.
    :param task: "regression", "binary" or "multiclass".
    :param class_names: the label of each class as text, in the order of the integer labels; () in regression.
    """

    columns: tuple[Column, ...]
    targets: tuple[str, ...]
    task: Task
    class_names: tuple[str, ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Name of each column of X; "colour=red" for a level."""
        return tuple(
            name
            for c in self.columns
            for name in ([c.name] if c.levels is None else [f"{c.name}={v}" for v in c.levels])
        )

    def to_json(self) -> dict[str, Any]:
        """A dictionary for `experiment.run_dir.write_json`."""
        columns = [{"name": c.name, "levels": None if c.levels is None else list(c.levels)} for c in self.columns]
        return {
            "columns": columns,
            "targets": list(self.targets),
            "task": self.task,
            "class_names": list(self.class_names),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "TableSchema":
        """The inverse of :meth:`to_json`.

        :raises ValueError: if entries are missing or of another kind.
        """
        try:
            columns = tuple(
                Column(str(c["name"]), None if c["levels"] is None else tuple(map(str, c["levels"])))
                for c in stored["columns"]
            )
            targets, names = tuple(map(str, stored["targets"])), tuple(map(str, stored["class_names"]))
            task = stored["task"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"the stored table schema is damaged ({error!r}); take an undamaged copy.") from error
        if task not in get_args(Task):
            raise ValueError(f"the stored table schema has the unknown task {task!r}; take an undamaged copy.")
        return cls(columns, targets, cast(Task, task), names)


def read_table(path: str | os.PathLike[str], *, target: str | None, task: Task | None = None) -> Dataset:
    """Read a table and find out what its columns are.

    An .npz file holds either matrices `X` [N, D] and `y` or `Y` ([N] or [N, P]), and perhaps `feature_names` [D] and
    standard splits `train_idx`, `test_idx` [splits, n], or else one array [N] for each column. Tables have a header.

    :param target: the column to predict. Not needed for an .npz file with X and y.
    :param task: what the target is. If None: text, true/false and categories are labels, two different integers are
        binary labels, and at most 20 different integers that are at most 5% of N are multiclass labels; everything
        else is a regression target. Text with more than 20 levels that are more than 5% of N is refused. Classes are
        sorted, so with two classes the second in order is class 1.
    :return: the data set; :func:`schema_of` gives the encoding to store.
    :raises ValueError: naming file and columns: a file that is missing, empty, truncated or of another format; missing
        values; dates; text among numbers; a text column of more than 50 levels; a task that the target does not allow.
    """
    path = Path(path)
    table = _read(path)
    targets = _target_names(table, target, path)
    frame = table.frame
    features = [name for name in frame.columns if name not in targets]
    if not features:
        raise ValueError(f"{path} has no column besides the target {targets[0]!r}; add the inputs.")
    if len(frame) < 2:
        raise ValueError(f"{path} must have at least 2 rows below its header, got {len(frame)}; check the file.")
    _check_missing(frame, [*features, *targets], path)
    _check_dates(frame, [*features, *targets], path)
    columns = tuple(_column(frame[name], path) for name in features)
    found: Task = task or ("regression" if len(targets) > 1 else _inferred_task(frame[targets[0]], path))
    class_names = _class_names(frame, targets, found, path)
    schema = TableSchema(columns, tuple(targets), found, class_names)
    return Dataset(
        name=path.name.split(".")[0],
        X=_features(schema, frame, path),
        Y=_targets(schema, frame, path),
        task=found,
        feature_names=schema.feature_names,
        target_name=", ".join(targets),
        class_names=class_names,
        source=f"the file {path.name}" + ("" if task else f"; task {found!r} inferred from the target"),
        splits=table.splits,
        schema=schema,
    )


def schema_of(data: Dataset | Splits | Rows) -> TableSchema:
    """How to read a new table for a model of this data: its schema, else columns of numbers named as the features."""
    if data.schema is not None:
        return data.schema
    columns = tuple(Column(name) for name in data.feature_names)
    targets = data.target_names if isinstance(data, Rows) else (data.target_name,)
    return TableSchema(columns, targets, cast(Task, data.task), data.class_names)


def apply_schema(schema: TableSchema, path: str | os.PathLike[str]) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
    """Encode another table as the one that `schema` came from.

    :return: X [N, D] in raw units, and Y [N, P] as in :class:`Dataset`, or None if the table lacks the
        target columns or they are empty. Other columns are not used, and the order of columns is free.
    :raises ValueError: as :func:`read_table`, and if feature columns are missing or a value is no known level or class.
    """
    path = Path(path)
    table = _read(path)
    frame = table.frame
    names = [column.name for column in schema.columns]
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise ValueError(f"{path} must have the columns of the training data, but lacks {_quoted(absent)}; add them.")
    if len(frame) == 0:
        raise ValueError(f"{path} must have at least 1 row below its header, got none; check the file.")
    has_targets = all(name in frame.columns and frame[name].notna().any() for name in schema.targets)
    _check_missing(frame, [*names, *(schema.targets if has_targets else ())], path)
    X = _features(schema, frame, path)
    check_finite(X, schema.feature_names, f"X of {path}")
    if not has_targets:
        return X, None
    Y = _targets(schema, frame, path)
    check_finite(Y, schema.targets, f"Y of {path}")
    return X, Y


def read_npz(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file by name; never unpickles.

    :raises ValueError: if the file is damaged or holds Python objects.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (AttributeError, TypeError, *_READ_ERRORS) as error:
        raise ValueError(f"{path} is no readable .npz file of plain arrays ({error}); write it again.") from error


class _Table(NamedTuple):
    frame: pd.DataFrame
    targets: tuple[str, ...] = ()  # known only for an .npz file with X and y
    splits: tuple[tuple[Indices, Indices], ...] | None = None


def _read(path: Path) -> _Table:
    if not path.is_file():
        raise ValueError(f"--data must be a file, but there is none at {path}; check the path.")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty; check how it was written.")
    kind = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    if kind.lower() in (".csv", ".csv.gz"):
        return _Table(_read_csv(path))
    if kind.lower() == ".parquet":
        try:
            importlib.import_module("pyarrow")
            frame = pd.read_parquet(path)
        except ImportError as error:
            raise ValueError(
                f"reading {path} needs the package pyarrow ({error}); install a version for NumPy {np.__version__}."
            ) from error
        except (OSError, *_READ_ERRORS) as error:
            raise ValueError(f"{path} is no readable parquet file ({error}); write it again.") from error
        frame.columns = frame.columns.map(str)
        return _Table(frame.reset_index(drop=True))
    if kind.lower() == ".npz":
        return _npz_table(read_npz(path), path)
    raise ValueError(f"--data must end in .csv, .csv.gz, .parquet or .npz, got {path.name}; convert the file.")


def _read_csv(path: Path) -> pd.DataFrame:
    try:
        opener = gzip.open if path.suffix.lower() == ".gz" else open
        with opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
            header = next(csv.reader(lines), [])
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            frame = pd.read_csv(
                path, index_col=False, float_precision="round_trip", encoding="utf-8-sig", low_memory=False
            )
    except pd.errors.ParserWarning as error:
        raise ValueError(f"{path} has rows of more values than column names; check its commas.") from error
    except (csv.Error, *_READ_ERRORS) as error:
        raise ValueError(f"{path} is no readable, complete CSV file in UTF-8 ({error}); write it again.") from error
    header = [name.strip() for name in header]
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise ValueError(f"{path} must have different column names, but {_quoted(repeated)} occur twice; rename them.")
    if "" in header:
        raise ValueError(
            f"column {header.index('')} of {path} has no name; name it, or leave out a column of row numbers."
        )
    if any(re.fullmatch(r"[-+]?\d*\.?\d+([eE][-+]?\d+)?", name) for name in header):
        raise ValueError(f"the first line of {path} must hold column names, got numbers ({header[0]}, ...); add them.")
    if len(header) == 1 and re.search(r"[;\t]", header[0]):
        raise ValueError(f"{path} must have commas between its columns, got {header[0][:60]!r}; convert it.")
    frame.columns = pd.Index(header)
    return frame


def _npz_table(arrays: dict[str, NDArray[Any]], path: Path) -> _Table:
    if "X" not in arrays:
        wrong = [name for name, array in arrays.items() if array.shape != (len(array) if array.ndim else 0,)]
        lengths = {len(array) for array in arrays.values() if array.ndim}
        if wrong or len(lengths) != 1:
            raise ValueError(
                f"{path} must hold X and y, or one array [N] for each column, got "
                f"{', '.join(f'{name} {array.shape}' for name, array in arrays.items()) or 'no array'}; write it again."
            )
        return _Table(pd.DataFrame(arrays))
    extra = sorted(set(arrays) - {"X", "y", "Y", "feature_names", "train_idx", "test_idx"})
    if extra or {"y", "Y"} <= set(arrays):
        raise ValueError(
            f"{path} may hold X, y or Y, feature_names, train_idx and test_idx, got {_quoted(sorted(arrays))}; leave "
            "out the others."
        )
    X = arrays["X"]
    names = [str(name) for name in arrays.get("feature_names", [f"x{d}" for d in range(X.shape[-1] if X.ndim else 0)])]
    if X.ndim != 2 or len(set(names)) != X.shape[1]:
        raise ValueError(
            f"X in {path} must be [N, D] with D different feature names, got {X.shape}, {len(names)} names."
        )
    frame = pd.DataFrame(X, columns=pd.Index(names))
    targets: tuple[str, ...] = ()
    key = "Y" if "Y" in arrays else "y"
    if key in arrays:
        Y = np.atleast_1d(arrays[key])
        Y = Y[:, None] if Y.ndim == 1 else Y
        targets = (key,) if Y.shape[1] == 1 else tuple(f"{key}{p}" for p in range(Y.shape[1]))
        if Y.ndim != 2 or len(Y) != len(X) or set(targets) & set(names):
            raise ValueError(
                f"{key} in {path} must be [N] or [N, P] with N = {len(X)} and be no feature's name, got {Y.shape}."
            )
        for p, name in enumerate(targets):
            frame[name] = Y[:, p]
    return _Table(frame, targets, _stored_splits(arrays, path))


def _stored_splits(arrays: Mapping[str, NDArray[Any]], path: Path) -> tuple[tuple[Indices, Indices], ...] | None:
    pair = [arrays[key] for key in ("train_idx", "test_idx") if key in arrays]
    if not pair:
        return None
    if len(pair) != 2 or any(a.ndim != 2 or a.dtype.kind not in "iu" for a in pair) or len(pair[0]) != len(pair[1]):
        raise ValueError(f"train_idx and test_idx in {path} must both be integers [splits, n]; write them again.")
    return tuple((train.astype(np.int64), test.astype(np.int64)) for train, test in zip(*pair, strict=True))


def _target_names(table: _Table, target: str | None, path: Path) -> list[str]:
    if table.targets and target in (None, "y", "Y"):
        return list(table.targets)
    if table.targets:
        raise ValueError(f"--target={target} cannot be chosen in {path}, which holds X and y; leave --target out.")
    if target is None or target not in table.frame.columns:
        raise ValueError(f"--target must be a column of {path}, got {target!r}; it has {_quoted(table.frame.columns)}.")
    return [target]


def _check_missing(frame: pd.DataFrame, names: Sequence[str], path: Path) -> None:
    counts = frame[list(names)].isna().sum()
    bad = [f"{name!r} ({count})" for name, count in counts.items() if count]
    if bad:
        raise ValueError(f"{path} has missing values in {', '.join(bad)}; drop those rows or columns, or impute them.")


def _check_dates(frame: pd.DataFrame, names: Sequence[str], path: Path) -> None:
    bad = [name for name in names if _is_date(frame[name])]
    if bad:
        raise ValueError(
            f"{path} has dates in {_quoted(bad)}; replace each by numbers (year, month, hour, or days since a date) or "
            "drop it."
        )


def _is_date(series: pd.Series) -> bool:
    if series.dtype.kind in "mM" or isinstance(series.dtype, pd.PeriodDtype | pd.DatetimeTZDtype):
        return True
    if _is_number(series):
        return False
    texts = series.astype(str)
    return bool(texts.map(_DATE.fullmatch).notna().mean() > 0.5)


def _is_number(series: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(series.dtype) and series.dtype.kind in "fiub"


def _column(series: pd.Series, path: Path) -> Column:
    name = str(series.name)
    if _is_number(series):
        return Column(name)
    parsed = pd.to_numeric(series.astype(str), errors="coerce").isna()
    if 0 < parsed.sum() < len(series) / 2:  # mostly numbers: the rest is more likely a mistake than a level
        row = int(parsed.to_numpy().argmax())
        raise ValueError(
            f"column {name!r} of {path} must hold numbers, but {int(parsed.sum())} values are text, the first "
            f"{series.iloc[row]!r} in row {row} (from 0); correct them or drop the rows."
        )
    levels = sorted(set(_texts(series)))
    if len(levels) > MAX_LEVELS:
        raise ValueError(
            f"text column {name!r} of {path} has {len(levels)} levels, at most {MAX_LEVELS} are allowed; drop it, or "
            "group its levels."
        )
    return Column(name, tuple(levels))


def _texts(series: pd.Series) -> NDArray[np.object_]:
    """Values as text; 1, 1.0 and "1" are the same."""
    if _is_number(series) and series.dtype.kind != "b" and _is_integral(series):
        series = series.astype(np.int64)
    return np.asarray(series.astype(str), dtype=object)


def _is_integral(series: pd.Series) -> bool:
    values = series.to_numpy(dtype=np.float64)
    return bool(np.all(np.isfinite(values)) and np.all(values == np.round(values)) and np.all(np.abs(values) < 2**53))


def _inferred_task(series: pd.Series, path: Path) -> Task:
    is_label = not _is_number(series) or series.dtype.kind == "b"
    if not is_label and not _is_integral(series):
        return "regression"
    distinct = series.nunique()
    if distinct == 2:
        return "binary"
    if is_label:
        if distinct > max(_MAX_CLASSES, _CLASS_FRACTION * len(series)):
            raise ValueError(
                f"target {series.name!r} of {path} is text with {distinct} different values in {len(series)} rows, too "
                "many for classes; choose another target or group its values."
            )
        return "multiclass"
    return "multiclass" if distinct <= min(_MAX_CLASSES, _CLASS_FRACTION * len(series)) else "regression"


def _class_names(frame: pd.DataFrame, targets: Sequence[str], task: Task, path: Path) -> tuple[str, ...]:
    series = frame[targets[0]]
    is_number = all(_is_number(frame[name]) for name in targets)
    what = f"--task={task} does not fit the target {series.name!r} of {path}: it"
    if task == "regression":
        if not is_number:
            raise ValueError(f"{what} holds text, not numbers; choose binary or multiclass, or another target.")
        return ()
    distinct = sorted(series.unique()) if is_number else sorted(series.astype(str).unique())
    if len(targets) > 1 or (is_number and not _is_integral(series)):
        raise ValueError(f"{what} holds fractions or several columns, not labels; choose regression.")
    if len(distinct) < 2 or (task == "binary" and len(distinct) > 2):
        wanted = "2 different values" if task == "binary" else "at least 2 different values"
        raise ValueError(f"{what} must have {wanted}, got {len(distinct)}; choose another task or target.")
    return tuple(_texts(pd.Series(distinct)))


def _features(schema: TableSchema, frame: pd.DataFrame, path: Path) -> NDArray[np.float64]:
    blocks = []
    for column in schema.columns:
        series = frame[column.name]
        if column.levels is None:
            blocks.append(_float_column(series, path)[:, None])
        else:
            blocks.append(np.eye(len(column.levels))[_codes(series, column.levels, "level", path)])
    return np.concatenate(blocks, axis=1)


def _targets(schema: TableSchema, frame: pd.DataFrame, path: Path) -> NDArray[Any]:
    if schema.task == "regression":
        return np.stack([_float_column(frame[name], path) for name in schema.targets], axis=1)
    return _codes(frame[schema.targets[0]], schema.class_names, "class", path)[:, None]


def _float_column(series: pd.Series, path: Path) -> NDArray[np.float64]:
    if not _is_number(series):
        raise ValueError(
            f"column {series.name!r} of {path} must hold numbers, got {series.dtype} such as {series.iloc[0]!r}; "
            "convert it."
        )
    return np.asarray(series, dtype=np.float64)


def _codes(series: pd.Series, known: Sequence[str], kind: str, path: Path) -> NDArray[np.int64]:
    texts = _texts(series)
    codes = np.asarray(pd.Index(known, dtype=object).get_indexer(pd.Index(texts, dtype=object)), dtype=np.int64)
    if (codes < 0).any():
        row = int((codes < 0).argmax())
        raise ValueError(
            f"column {series.name!r} of {path} has the value {texts[row]!r} in row {row} (from 0), no {kind} of the "
            f"training data ({_quoted(known)}); drop such rows."
        )
    return codes


def _quoted(names: Any, limit: int = 10) -> str:
    names = [repr(str(name)) for name in names]
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")

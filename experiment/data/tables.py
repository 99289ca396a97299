"""A user's own table (.csv, .csv.gz, .parquet or .npz) as rows, and the same columns again for prediction.

    data = read_table("houses.csv", target="price")
    write_json("schema.json", schema_of(data).to_json())
    X, Y = apply_schema(TableSchema.from_json(stored), "new_houses.csv")        # Y is None if "price" is not there

Columns of numbers and of true/false become one column of X each. Columns of text become one column of zeros and ones
for each level. The target is a regression target, a binary or a multiclass label, see :func:`read_table`.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiment.data.frames import Table, check_missing, quoted, read_frame
from experiment.data.numeric import check_finite, undivided
from experiment.data.rows import Rows, Task
from experiment.data.schema import Column, TableSchema

__all__ = ["Column", "TableSchema", "apply_schema", "read_table", "schema_of"]

MAX_LEVELS = 50
"""Most levels that a text column may have."""

_MAX_CLASSES = 20
_CLASS_FRACTION = 0.05
_DATE = re.compile(r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})([T\s]+\d{1,2}:\d{2}.*)?\s*")


def read_table(path: str | os.PathLike[str], *, target: str | None, task: Task | None = None) -> Rows:
    """Read a table and find out what its columns are.

    An .npz file holds either matrices `X` [N, D] and `y` or `Y` ([N] or [N, P]), and perhaps `feature_names` [D] and
    standard splits `train_idx`, `test_idx` [splits, n], or else one array [N] for each column. Tables have a header.

    :param target: the column to predict. Not needed for an .npz file with X and y.
    :param task: what the target is. If None: text, true/false and categories are labels, two different integers are
        binary labels, and at most 20 different integers that are at most 5% of N are multiclass labels; everything
        else is a regression target. Text with more than 20 levels that are more than 5% of N is refused. Classes are
        sorted, so with two classes the second in order is class 1.
    :return: the data set in one part "all"; :func:`schema_of` gives the encoding to store.
    :raises ValueError: naming file and columns: a file that is missing, empty, truncated or of another format; missing
        values; dates; text among numbers; a text column of more than 50 levels; a task that the target does not allow.
    """
    path = Path(path)
    table = read_frame(path)
    targets = _target_names(table, target, path)
    frame = table.frame
    features = [name for name in frame.columns if name not in targets]
    if not features:
        raise ValueError(f"{path} has no column besides the target {targets[0]!r}; add the inputs.")
    if len(frame) < 2:
        raise ValueError(f"{path} must have at least 2 rows below its header, got {len(frame)}; check the file.")
    check_missing(frame, [*features, *targets], path)
    _check_dates(frame, [*features, *targets], path)
    columns = tuple(_column(frame[name], path) for name in features)
    found: Task = task or ("regression" if len(targets) > 1 else _inferred_task(frame[targets[0]], path))
    class_names = _class_names(frame, targets, found, path)
    schema = TableSchema(columns, tuple(targets), found, class_names)
    return undivided(
        path.name.split(".")[0],
        _features(schema, frame, path),
        _targets(schema, frame, path),
        found,
        feature_names=schema.feature_names,
        target_names=targets,
        class_names=class_names,
        source=f"the file {path.name}" + ("" if task else f"; task {found!r} inferred from the target"),
        splits=table.splits,
        schema=schema,
    )


def schema_of(data: Rows) -> TableSchema:
    """How to read a new table for a model of this data: its schema, else columns of numbers named as the features."""
    if data.schema is not None:
        return data.schema
    columns = tuple(Column(name) for name in data.feature_names)
    return TableSchema(columns, data.target_names, cast(Task, data.task), data.class_names)


def apply_schema(schema: TableSchema, path: str | os.PathLike[str]) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
    """Encode another table as the one that `schema` came from.

    :return: X [N, D] in raw units, and Y [N, P] as in `Rows`, or None if the table lacks the target columns or they are
        empty. Other columns are not used, and the order of columns is free.
    :raises ValueError: as :func:`read_table`, and if feature columns are missing or a value is no known level or class.
    """
    path = Path(path)
    table = read_frame(path)
    frame = table.frame
    names = [column.name for column in schema.columns]
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise ValueError(f"{path} must have the columns of the training data, but lacks {quoted(absent)}; add them.")
    if len(frame) == 0:
        raise ValueError(f"{path} must have at least 1 row below its header, got none; check the file.")
    has_targets = all(name in frame.columns and frame[name].notna().any() for name in schema.targets)
    check_missing(frame, [*names, *(schema.targets if has_targets else ())], path)
    X = _features(schema, frame, path)
    check_finite(X, schema.feature_names, f"X of {path}")
    if not has_targets:
        return X, None
    Y = _targets(schema, frame, path)
    check_finite(Y, schema.targets, f"Y of {path}")
    return X, Y


def _target_names(table: Table, target: str | None, path: Path) -> list[str]:
    if table.targets and target in (None, "y", "Y"):
        return list(table.targets)
    if table.targets:
        raise ValueError(f"--target={target} cannot be chosen in {path}, which holds X and y; leave --target out.")
    if target is None or target not in table.frame.columns:
        raise ValueError(f"--target must be a column of {path}, got {target!r}; it has {quoted(table.frame.columns)}.")
    return [target]


def _check_dates(frame: pd.DataFrame, names: Sequence[str], path: Path) -> None:
    bad = [name for name in names if _is_date(frame[name])]
    if bad:
        raise ValueError(
            f"{path} has dates in {quoted(bad)}; replace each by numbers (year, month, hour, or days since a date) or "
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
            f"training data ({quoted(known)}); drop such rows."
        )
    return codes

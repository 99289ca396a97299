"""A user's own table as rows, and new tables read alike for prediction.

    data = read_table("houses.csv", TableSpec(target=("price",)))     # or a frame of pandas or polars
    write_json("schema.json", schema_of(divide(data)).to_json())
    X, Y = apply_schema(Schema.from_json(stored), "new_houses.csv")                      # Y is None without "price"

What each column is follows from its values, see :mod:`gpflow_deep_runs.data.table.inference`, and what it becomes from
that, see :mod:`gpflow_deep_runs.data.table.features`. The target decides the task, see
:mod:`gpflow_deep_runs.data.table.targets`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from absl import logging
from numpy.typing import NDArray

from gpflow_deep_base.files import parse_json
from gpflow_deep_runs.data.files.libraries import pa, pc
from gpflow_deep_runs.data.files.sources import Table, read_source
from gpflow_deep_runs.data.rows import Indices, Rows
from gpflow_deep_runs.data.table.columns import Column
from gpflow_deep_runs.data.table.doubts import check_sentinels, names_again, total_of_numbers, totals_of_texts
from gpflow_deep_runs.data.table.features import Feature
from gpflow_deep_runs.data.table.inference import Seen, infer, infer_columns
from gpflow_deep_runs.data.table.numeric import check_finite, undivided
from gpflow_deep_runs.data.table.schema import Schema
from gpflow_deep_runs.data.table.spec import FileSpec, Forced, NewRows, TableSpec, Task, forced_columns
from gpflow_deep_runs.data.table.survey import Usable, is_missing, look, parsed, usable
from gpflow_deep_runs.data.values.cells import MISSING, Cells, quoted

__all__ = [
    "Encoded",
    "FileSpec",
    "NewRows",
    "Schema",
    "TableSpec",
    "apply_schema",
    "columns_of",
    "encode_chosen",
    "encode_table",
]
__all__ += ["load_schema", "read_table", "schema_of"]


_GAPS = ("NA", "na", "N.A.", "n.a.", "?", "??", "missing", "Missing", "MISSING")
"""Texts that are no classes."""


def read_table(source: object, spec: TableSpec = TableSpec()) -> Rows:
    """Read a table and find out what its columns are.

    An .npz file holds either matrices `X` [N, D] and `y` or `Y` ([N] or [N, P]), and perhaps `feature_names` [D] and
    standard splits `train_idx`, `test_idx` [splits, n], or else one array [N] for each column. Other tables have names
    of columns. `X` may be images [N, H, W] or [N, H, W, C].

    :param source: a file, see `sources.SUFFIXES`; a frame of pandas or polars; a table of Arrow.
    :param spec: what is known of it. The target is not needed for an .npz file with X and y.
    :return: the data set in one part "all", with a schema. Unless `spec.missing` is "error", X is NaN where a value is
        missing, until `rows.divide` (or `Schema.learned`, for folds) puts in what the training rows say; rows whose
        target is missing are left out.
    :raises ValueError: naming the file, the columns and the flags that help: a file that is missing, empty, truncated
        or of another format; missing values; text among numbers; ambiguous dates and numbers; text of too many levels;
        a target that is absent, does not vary, or does not allow the task.
    """
    # The columns, and which of them are predicted.
    table = read_source(source, spec=spec)
    targets = _targets(table, spec)
    encoded = encode_chosen(table, targets, spec)
    # X and Y, and what is to be said of them.
    about = f"the file {Path(source).name}" if isinstance(source, str | os.PathLike) else table.where
    notes = encoded.notes + ([] if spec.task else [f"task {encoded.schema.task!r} inferred from the target"])
    return undivided(
        table.name,
        encoded.X,
        encoded.Y,
        encoded.schema.task,
        feature_names=encoded.schema.feature_names,
        target_names=targets,
        class_names=encoded.schema.class_names,
        source="; ".join([about, *notes]),
        splits=table.splits and [_renumbered(pair, encoded.kept, len(table.columns)) for pair in table.splits],
        schema=encoded.schema,
        image_shape=table.image_shape,
    )


class Encoded(NamedTuple):
    """What :func:`encode_table` makes of a table.

    :ivar schema: what was found out.
    :ivar X: inputs [n, D], NaN where a value is missing.
    :ivar Y: targets [n, P] or labels [n, 1]; None without targets.
    :ivar kept: numbers of the n rows in the table.
    :ivar notes: what is to be said of the others.
    """

    schema: Schema
    X: NDArray[np.float64]
    Y: np.ndarray | None
    kept: Indices
    notes: list[str]


def encode_chosen(table: Table, targets: Sequence[str], spec: TableSpec) -> Encoded:
    """:func:`encode_table`, where missing values are imputed unless the user says what is to be done with them."""
    if spec.missing is not None or spec.bad_rows != "error":
        return encode_table(table, targets, spec)
    encoded = encode_table(table, targets, replace(spec, missing="impute"))
    has_gaps = any(f.num_missing for f in encoded.schema.columns) or any("a target" in note for note in encoded.notes)
    if has_gaps:
        return encoded
    # A new row with a missing value is one that the model has not seen.
    return encoded._replace(schema=replace(encoded.schema, missing="error"))


def encode_table(table: Table, targets: Sequence[str], spec: TableSpec) -> Encoded:
    """Find out what the columns of a table are, and make X and Y of them; see :func:`read_table`.

    :param targets: names of the target columns; () for none.
    """
    where = table.where
    if len(table.columns) < 2:
        raise ValueError(
            f"{where} must have at least 2 rows below its header, got {len(table.columns)}; check the file."
        )
    # Rows that hold nothing, repeat the names, or sum up others by their words.
    table, numbers, totals = _without_odd(table, spec)
    for name in (name for name in targets if name in table.columns.column_names and name not in spec.categorical):
        if gaps := _gaps_of(table.columns[name]):
            table = table._replace(columns=_with_gaps(table.columns, name, gaps))
            totals.append(f"{', '.join(map(repr, gaps))} of the target is missing (--categorical={name} keeps it)")
    seen: dict[str, Seen] = {}
    columns = columns_of(table.columns, targets, spec, where=where, delimiter=table.delimiter, seen=seen)
    # Texts that are read already take the place of their column.
    values = dict(zip(table.columns.column_names, table.columns.columns, strict=True))
    for name, floats in seen.items():
        if isinstance(floats, np.ndarray) and columns[name].kind == "number":
            values[name] = pa.chunked_array([pa.array(floats)])
    table = table._replace(columns=pa.table(values))
    if all(column.kind == "ignored" for name, column in columns.items() if name not in targets):
        besides = f" besides the target {targets[0]!r}" if targets else " that is used"
        raise ValueError(f"{where} has no column{besides}; add the inputs, or name them by --features.")
    # Rows that can be used, and whether the last or the first of them sums up the others by its numbers.
    cells = {name: values for name, values in seen.items() if isinstance(values, Cells)}
    used = usable(table.columns, columns, targets, spec, where=where, cells=cells)
    numeric = {name: used.found[name] for name in _of_kind(columns, "number")}
    for row, step in ((len(table.columns) - 1, 1), (0, -1)) if spec.file.total_rows != "keep" else ():
        is_used = len(used.kept) > 0 and used.kept[::step][-1] == row
        if is_used and (why := total_of_numbers({name: values[::step] for name, values in numeric.items()})):
            others = _rows_besides(table, {row: why}, spec)
            rest = encode_table(_taken(table, others), targets, spec)
            said = [*totals, f"row {row} (from 0), a total, left out as {why}", *rest.notes]
            return rest._replace(kept=numbers[others][rest.kept], notes=said)
    # Values that may stand for a missing one: the user is asked about all of them at once.
    dates = _of_kind(columns, "date")
    doubtful = {name: used.found[name] for name in _of_kind(columns, "number", "date")}
    check_sentinels(doubtful, where=where, dates=dates, keep=spec.keep_value)
    notes = [*totals, *_left_out(used, spec)]
    survey = look(used.found, columns.values(), targets=targets)
    if len(used.kept) < 2:
        raise ValueError(f"{where} must have at least 2 rows to use, got {len(used.kept)}; {', '.join(notes)}.")
    # Columns that the source itself leaves out, such as the index of a frame.
    named = {f"({name})" if name in columns else name: why for name, why in table.left_out}
    columns |= {name: Column(name, "ignored", note=why) for name, why in named.items()}
    # X and Y by what was found out.
    schema = Schema.of(columns, targets, survey, spec, where=where, chooses=True)
    notes += [f"{f.name!r} left out" for f in schema.columns if not f.is_used and columns[f.name].kind == "text"]
    if not schema.feature_names:  # texts alone
        Schema.of(columns, targets, survey, spec, where=where)
    X = schema.encode(used.found, where=where)
    Y = schema.encode_targets(used.found, where=where) if targets else None
    return Encoded(schema, X, Y, numbers[used.kept], notes)


def _gaps_of(values: pa.ChunkedArray) -> list[str]:
    """Texts of a target that stand for no value beside two words or more, as they do beside numbers."""
    if not pa.types.is_string(values.type):
        return []
    different = pc.unique(pc.utf8_trim_whitespace(pc.drop_null(pc.unique(values))))
    # Marks count only beside two words or more: numbers have theirs anyway.
    gaps = different.filter(pc.is_in(different, value_set=pa.array(_GAPS))).to_pylist()
    texts = {*different.to_pylist()} - {*_GAPS, *MISSING} if gaps else set()  # there may be many
    return sorted(gaps) if sum(not text[:1].isdigit() for text in texts) > 1 else []


def _with_gaps(table: pa.Table, name: str, gaps: Sequence[str]) -> pa.Table:
    is_gap = pc.is_in(pc.utf8_trim_whitespace(table[name]), value_set=pa.array(gaps))
    place = table.column_names.index(name)
    return table.set_column(place, name, pc.if_else(is_gap, pa.scalar(None, pa.string()), table[name]))


def columns_of(
    columns: pa.Table,
    targets: Sequence[str],
    spec: TableSpec,
    *,
    where: str,
    delimiter: str = "",
    seen: dict[str, Seen] | None = None,
) -> dict[str, Column]:
    """How the columns of a table are read: its inputs in the order of X, then the targets.

    A column that `spec` names is used, also if it looks like row numbers.

    :param columns: all rows, or the first ones of a table that is read piece by piece.
    :param seen: as of `inference.infer_columns`.
    :raises ValueError: naming the flag: columns that are not there; or as `inference.infer_columns`.
    """
    names = columns.column_names
    named = (*targets, *spec.features)
    # Columns that flags name must be there, each in one flag.
    for flag, flag_names in (("target", targets), ("features", spec.features)):
        if delimiter and len(names) == 1 and set(flag_names) - set(names):
            raise ValueError(
                f"{where} has one column, {names[0][:60]!r}: neither commas, semicolons, tabs, bars nor white space "
                "divide all its rows alike; write it with one of these, and texts that hold it in quotes."
            )
        if absent := [name for name in flag_names if name not in names]:
            raise ValueError(f"--{flag} must name columns of {where}, got {absent[0]!r}; it has {quoted(names)}.")
    if twice := [name for name in named if named.count(name) > 1 or name in spec.ignore]:
        raise ValueError(
            f"{twice[0]!r} must be in one of --target, --features and --ignore; leave it out of the others."
        )
    forced = forced_columns(
        names,
        where=where,
        ignore=spec.ignore,
        categorical=spec.categorical,
        numeric=spec.numeric,
        dates=spec.dates,
    )
    chosen = [*(spec.features or [name for name in names if name not in targets]), *targets]
    inferred = infer_columns(
        columns.select(chosen),
        where=where,
        forced={name: choice for name, choice in forced.items() if name in chosen},
        na_values=spec.na_values,
        delimiter=delimiter,
        is_tolerant=spec.bad_rows == "drop",
        seen=seen,
    )
    # A column that the user names is no id.
    for name in named:
        if inferred[name].kind == "ignored":
            inferred[name] = _named(name, columns[name], spec, where)
    return inferred


def schema_of(data: Rows) -> Schema:
    """How to read a new table for a model of this data: its schema, else columns of numbers named as the features.

    What is put in for missing values is learned from the part "train", if there is one and that is not done yet.
    """
    schema = data.schema
    # Sets of numbers have columns of the names of their features.
    if schema is None:
        targets = tuple(Column(name, "number") for name in data.target_names)
        columns = tuple(Feature(Column(name, "number")) for name in data.feature_names)
        schema = Schema(columns, targets, cast(Task, data.task), data.class_names)
    if schema.fills is None and "train" in data.parts:
        schema = schema.learned(data.train.X, data.name)
    return schema


def load_schema(path: str | os.PathLike[str]) -> Schema:
    """A schema from a JSON file, such as columns.json of a run.

    :raises ValueError: if it is damaged.
    """
    try:
        return Schema.from_json(parse_json(Path(path).read_bytes()))
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error}); take an undamaged copy.") from error


def apply_schema(
    schema: Schema, source: object, new: NewRows = NewRows(), *, may_miss: bool = False
) -> tuple[NDArray[np.float64], np.ndarray | None]:
    """Encode another table as the one that `schema` came from.

    :param source: as in :func:`read_table`.
    :param new: what differs from training.
    :param may_miss: whether X may be NaN where a value is missing and nothing is known to be put in.
    :return: X [N, D] in raw units, and Y [N, P] as in `Rows`, or None if the table lacks the target columns or they are
        empty, or if values are missing in them and `missing` is "impute". Other columns are not used, and the order of
        columns is free.
    :raises ValueError: as :func:`read_table`; if columns are missing; and naming value, row, column and flag: values
        that are missing, or no known level or class.
    """
    levels = tuple(f.name for f in schema.columns if f.column.kind == "category")
    file_spec = TableSpec(
        schema.required,
        categorical=levels,
        file=FileSpec(new.encoding or schema.encoding, schema.names, new.sheet or schema.sheet),
    )
    table = read_source(source, spec=file_spec)
    for name, why in table.left_out:
        if name == "(the file)":
            logging.warning("%s: %s.", table.where, why)
    where = table.where
    columns = table.columns
    # The flags of the new rows overrule those of training.
    schema = replace(
        schema,
        na_values=(*schema.na_values, *new.na_values),
        missing=new.missing or schema.missing,
        unknown=new.unknown or schema.unknown,
    )
    # All inputs must be there; without targets there are no scores.
    names = {*columns.column_names}
    if absent := [name for name in schema.required if name not in names]:
        raise ValueError(f"{where} must have the columns of the training data, but lacks {quoted(absent)}; add them.")
    if len(columns) == 0:
        raise ValueError(f"{where} must have at least 1 row below its header, got none; check the file.")
    X = schema.transform(columns, where=where)
    check_finite(X, schema.feature_names, f"X of {where}", may_miss=may_miss)
    if not schema.targets or not set(schema.target_names) <= names:
        return X, None
    return X, _known_targets(schema, columns, where)


def _targets(table: Table, spec: TableSpec) -> tuple[str, ...]:
    if table.targets and spec.target not in ((), ("y",), ("Y",)):
        raise ValueError(
            f"--target={','.join(spec.target)} cannot be chosen in {table.where}, which holds X and y; leave --target "
            "out."
        )
    if not table.targets and not spec.target:
        names = quoted(table.columns.column_names)
        raise ValueError(f"--target must be a column of {table.where}, got none; it has {names}.")
    known_names = table.columns.column_names  # of a text without the spaces around them
    return table.targets or tuple(name if name in known_names else name.strip() for name in spec.target)


def _named(name: str, values: pa.ChunkedArray, spec: TableSpec, where: str) -> Column:
    """How a column is read that the user wants: as numbers if they are, else as levels."""
    try:
        return infer(name, values, where=where, forced=Forced("number"), na_values=spec.na_values)
    except ValueError:
        return infer(name, values, where=where, forced=Forced("category"), na_values=spec.na_values)


def _without_odd(table: Table, spec: TableSpec) -> tuple[Table, Indices, list[str]]:
    """A table without rows that hold nothing, repeat the names or sum up others, which rows these are, and what to say.

    :raises ValueError: naming row and flags, unless `spec` says what to do.
    """
    notes = list[str]()
    numbers = np.arange(len(table.columns))
    # In texts: empty lines, and lines that repeat the names.
    if table.delimiter:
        is_empty, repeats = names_again(table.columns)
        if repeats.any() and spec.bad_rows == "error":
            raise ValueError(
                f"{table.where} repeats its line of names in row {int(repeats.argmax())} (from 0); give "
                "--bad_rows=drop to leave out such rows, or --names=NAME,... if the file has no such line."
            )
        if repeats.any() and table.columns.column_names[0] not in spec.ignore:
            _check_other(table, int(repeats.argmax()))
        for rows, reason in ((is_empty, "without any value"), (repeats, "that repeat the names")):
            notes += [f"{rows.sum()} rows {reason} left out"] if rows.any() else []
        if notes:
            numbers = np.flatnonzero(~(is_empty | repeats))
            table = _taken(table, numbers)
    # In all tables: rows whose words say that they sum up others.
    totals = {} if spec.file.total_rows == "keep" else totals_of_texts(table.columns)
    if totals:
        others = _rows_besides(table, totals, spec)
        table = _taken(table, others)
        numbers = numbers[others]
        notes += [f"row {row} (from 0), a total, left out as {why}" for row, why in list(totals.items())[:3]]
        notes += [f"{len(totals) - 3} more totals left out"] if len(totals) > 3 else []
    return table, numbers, notes


def _taken(table: Table, rows: Indices) -> Table:
    """Some rows of a table."""
    return table._replace(columns=table.columns.take(pa.array(rows)))


def _check_other(table: Table, row: int) -> None:
    """Refuse a second table of other rows, such as of years below months, whose line of names is that row."""
    # The shape of a text: words become a, digits 9.
    firsts = pc.replace_substring_regex(
        pc.utf8_trim_whitespace(pc.fill_null(table.columns.column(0), "")), "\\pL+", "a"
    )
    shapes = pc.replace_substring_regex(firsts, "[0-9]", "9")
    below = shapes.slice(row + 1)
    if len(below) and not pc.any(pc.is_in(below, value_set=pc.unique(shapes.slice(0, row)))).as_py():
        name = table.columns.column_names[0]
        raise ValueError(
            f"{table.where} repeats its line of names in row {row} (from 0), and below it are rows of another kind, "
            f"such as {firsts[row + 1].as_py()!r} in {name!r} after {firsts[0].as_py()!r}; give --skip_footer=N to "
            f"leave out the last N lines, a second table, or --ignore={name} if all rows are alike."
        )


def _rows_besides(table: Table, totals: Mapping[int, str], spec: TableSpec) -> Indices:
    """The rows besides those that sum up others, whose numbers and reasons are given.

    :raises ValueError: naming row and flags, unless `spec` says what to do.
    """
    if spec.file.total_rows == "error" and spec.bad_rows == "error":
        row, why = next(iter(totals.items()))
        more = f", and so do {len(totals) - 1} more" if len(totals) > 1 else ""
        raise ValueError(
            f"row {row} (from 0) of {table.where} seems to sum up others, as {why}{more}; give --total_rows=drop to "
            "leave out such rows, or --total_rows=keep if they are rows like the others."
        )
    return np.delete(np.arange(len(table.columns)), list(totals))


def _of_kind(columns: Mapping[str, Column], *kinds: str) -> list[str]:
    return [name for name, column in columns.items() if column.kind in kinds]


def _left_out(used: Usable, spec: TableSpec) -> list[str]:
    """What is to be said of rows that are not used."""
    why = "without a target" if spec.missing == "impute" else "with missing values"
    counts = {"that cannot be read": used.is_bad.sum(), why: used.is_open.sum()}
    return [f"{count} rows {which} left out" for which, count in counts.items() if count]


def _renumbered(pair: tuple[Indices, Indices], kept: Indices, num_rows: int) -> tuple[Indices, Indices]:
    """Row numbers of a standard split among the rows that are kept; as they are if one of them does not exist."""
    if len(kept) == num_rows or any(((rows < 0) | (rows >= num_rows)).any() for rows in pair):
        return pair
    # A row that is left out has the number -1.
    numbers = np.full(num_rows, -1)
    numbers[kept] = np.arange(len(kept))
    train, test = (numbers[rows] for rows in pair)
    return train[train >= 0], test[test >= 0]


def _known_targets(schema: Schema, columns: pa.Table, where: str) -> np.ndarray | None:
    targets = {column.name: column for column in schema.targets}
    # Texts that were no classes in training are missing here, too.
    for name in schema.target_names:
        gaps = [gap for gap in _gaps_of(columns[name]) if gap not in schema.class_names]
        columns = _with_gaps(columns, name, gaps) if gaps else columns
    cells = parsed(targets, columns, na_values=schema.na_values, where=where)
    missing = np.any([is_missing(values) for values in cells.values()], axis=0)
    if missing.all():
        return None
    # Scores need a target in each row.
    if missing.any() and schema.missing == "error":
        raise ValueError(
            f"{where} has missing values in the target, in {int(missing.sum())} rows; leave the column out to predict "
            "all rows without scores, or give --missing=impute, which does so."
        )
    if missing.any():
        logging.warning("%s has no target in %d rows, so all are predicted without scores.", where, missing.sum())
        return None
    Y = schema.encode_targets(cells, where=where)
    check_finite(Y, schema.target_names, f"Y of {where}")
    return Y

"""Your own table as a stream: its columns are what they are in memory, and so are X and Y of each block.

    shards, preset = open_table("shards/*.parquet", TableSpec(target=("price",), missing="impute"))
    preset.schema                                       # but for what is put in for missing values, see `scan.scan`

What the columns are is found out from the first rows, :data:`HEAD_ROWS`. Levels, labels, the parts of dates that vary
and where values are missing follow from all rows, see :mod:`gpflow_deep_runs.data.streams.counting`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data import doubts, tables
from gpflow_deep_runs.data.cells import quoted
from gpflow_deep_runs.data.columns import Column
from gpflow_deep_runs.data.delimited import check_names
from gpflow_deep_runs.data.forced import forced_columns
from gpflow_deep_runs.data.libraries import pa
from gpflow_deep_runs.data.rows import Part
from gpflow_deep_runs.data.schema import Schema
from gpflow_deep_runs.data.spec import TableSpec
from gpflow_deep_runs.data.streams import counting
from gpflow_deep_runs.data.streams.counting import Known
from gpflow_deep_runs.data.streams.moments import Moments
from gpflow_deep_runs.data.streams.presets import Selection, StreamPreset
from gpflow_deep_runs.data.streams.shards import Field, Layout, Shards, columns_of, find_files, open_shards
from gpflow_deep_runs.data.survey import features_of, usable

__all__ = ["HEAD_ROWS", "Foot", "check_feet", "check_sentinels", "completed", "foot_of", "open_table", "reopen"]

HEAD_ROWS = 20_000
_HEAD_BLOCKS = 16
"""Rows that decide what the columns are, and blocks that they are in: fewer rows of tables with many columns."""


class _Head(NamedTuple):
    """The first rows of a stream; `where` names them, and `hint` says to the reader of an error that there are more."""

    table: pa.Table
    where: str
    delimiter: str
    hint: str


_OF_FILES = ("encoding", "names", "sheet", "max_bytes", "skip_rows", "skip_footer")
"""Flags of a table that a stream does not have."""


def open_table(pattern: str, spec: TableSpec, *, progress: bool = False) -> tuple[Shards, StreamPreset]:
    """Find out what the columns of a stream are, and open its files.

    :param pattern: the files, see `shards.find_files`.
    :param progress: show a bar on standard error if all rows have to be looked at.
    :raises ValueError: as `tables.read_table`, and as `shards.open_shards`.
    """
    for flag in _OF_FILES:
        if flag in spec.given():
            raise ValueError(
                f"--{flag} is for gpflow-deep convert and for tables that are read as a whole; leave it out."
            )
    # The first rows tell what the columns are
    shards = _open(pattern, spec)
    head = _head(shards)
    _check_totals(shards, head, spec)
    head_facts = _known(head, spec)
    shards = _narrowed(shards, head_facts.columns, head_facts.empty)
    columns = head_facts.columns
    survey = head_facts.survey
    # If there are more, one pass counts levels, labels and missing values of all rows
    if head.hint:
        survey = counting.count(shards, head_facts, spec, progress=progress)
        columns = counting.grown(head_facts, survey)
    schema = Schema.of(columns, spec.target, survey, spec, where=f"the stream {pattern!r}")
    return shards, _preset(schema, spec, pattern)


def _check_totals(shards: Shards, head: _Head, spec: TableSpec) -> None:
    """:raises ValueError: naming a row among the first or the last ones that sums up others."""
    if spec.total_rows == "keep":
        return
    # Totals stand among the first rows, or at the end of the last file
    last = shards.block(len(shards.blocks) - 1)
    for table, where, first_row in (
        (head.table, head.where, 0),
        (shards.table(len(shards.blocks) - 1), shards.files[last.file], last.first_row),
    ):
        if totals := doubts.totals_of_texts(table):
            row, why = next(iter(totals.items()))
            raise ValueError(
                f"row {first_row + row} (from 0) of {where} seems to sum up others, as {why}; leave such rows out of "
                "the files, or give --total_rows=keep if they are rows like the others."
            )


class Foot(NamedTuple):
    """Of the columns of numbers of a block what tells whether the last row of its file sums up the others, [C] each.

    :ivar file: number of the file.
    :ivar num_rows: rows, without that last one.
    :ivar sums: of their values.
    :ivar sizes: of their absolute values.
    :ivar high: the largest of these.
    :ivar last: the last row of the file, if it is in the block.
    """

    file: int
    num_rows: int
    sums: NDArray[np.float64]
    sizes: NDArray[np.float64]
    high: NDArray[np.float64]
    last: NDArray[np.float64] | None


def foot_of(
    shards: Shards, preset: StreamPreset, number: int, X: NDArray[np.float64], Y: NDArray[np.float64]
) -> Foot | None:
    """What is known of a block of your own table; None of others, or if rows that sum up others are kept."""
    if preset.schema is None or preset.table is None or preset.table.total_rows == "keep":
        return None
    # The columns of numbers, and targets of a regression
    numeric = {f.name for f in preset.schema.columns if f.column.kind == "number"}
    columns = [d for d, name in enumerate(preset.feature_names) if name in numeric]
    values = X[:, columns] if preset.class_names else np.concatenate([X[:, columns], Y], axis=1)
    file = shards.block(number).file
    # The last row of a file is not among those that it may sum up
    is_last = number + 1 == len(shards.blocks) or shards.block(number + 1).file != file
    rows = np.nan_to_num(values[:-1] if is_last else values, posinf=0.0, neginf=0.0)
    sizes = np.abs(rows)
    last = values[-1] if is_last and len(values) else None
    return Foot(file, len(rows), rows.sum(axis=0), sizes.sum(axis=0), sizes.max(axis=0, initial=0.0), last)


def check_feet(shards: Shards, feet: Sequence[Foot]) -> None:
    """:raises ValueError: if the numbers in the last row of a file are the sums of their columns in it, or in all."""
    for end in [foot for foot in feet if foot.last is not None]:
        # Above it are the rows of its file, or those of earlier files, too
        for above in (
            [foot for foot in feet if foot.file == end.file],
            [foot for foot in feet if foot.file <= end.file],
        ):
            sums, sizes = (sum(parts) for parts in zip(*((foot.sums, foot.sizes) for foot in above), strict=True))
            last = np.nan_to_num(np.asarray(end.last))
            high = np.max([foot.high for foot in above], axis=0)
            # Zeros say nothing; a sum that is no larger than what it sums up may be a row
            is_told = (last != 0) & (sizes > 0)
            agrees = np.abs(last - sums) <= 1e-9 * np.asarray(sizes)
            if is_told.any() and agrees[is_told].all() and (np.abs(last) > high)[is_told].any():
                row = sum(foot.num_rows for foot in feet if foot.file == end.file)
                raise ValueError(
                    f"row {row} (from 0) of {shards.files[end.file]} seems to sum up others, as its numbers are the "
                    "sums of their columns; leave such rows out of the files, or give --total_rows=keep if they are "
                    "rows like the others."
                )


def reopen(pattern: str, spec: TableSpec, schema: Schema) -> tuple[Shards, StreamPreset]:
    """Open the files of a stream of which the schema is known.

    :raises ValueError: as `shards.open_shards`.
    """
    shards = _narrowed(_open(pattern, spec), _columns(schema), ())
    return shards, _preset(schema, spec, pattern)


def _preset(schema: Schema, spec: TableSpec, pattern: str) -> StreamPreset:
    """How blocks become rows; missing values are NaN if the schema does not know yet what is put in for them."""
    source = f"the files {pattern}" + ("" if spec.task else f"; task {schema.task!r} inferred from the target")
    return StreamPreset(
        "stream",
        (),
        _selector(schema, spec),
        schema.feature_names,
        schema.target_names,
        schema.task,
        schema.class_names,
        source=source,
        schema=schema,
        table=spec,
    )


def check_sentinels(preset: StreamPreset, sample: Part, moments: tuple[Moments, Moments]) -> None:
    """Ask what values of your own table are that may stand for a missing one, by a sample and the ranges of all rows.

    :param sample: of the training rows.
    :param moments: of X and Y in all training rows.
    :raises ValueError: as `doubts.check_sentinels`.
    """
    if preset.schema is None or preset.table is None:
        return
    x, y = moments
    names = [*preset.feature_names, *preset.target_names]
    values = np.concatenate([sample.X, sample.Y], axis=1)
    # The sample may lack the ends, which the moments have
    ends = np.stack([np.concatenate([x.low, y.low]), np.concatenate([x.high, y.high])])
    for name, column in _columns(preset.schema).items():
        is_date = column.kind == "date"
        place = f"{name}.day" if is_date else name
        if (
            column.kind not in ("number", "date")
            or place not in names
            or (name in preset.target_names and preset.class_names)
        ):
            continue
        column_number = names.index(place)
        doubts.check_sentinels(
            name,
            np.append(values[:, column_number], ends[:, column_number]),
            where="the stream",
            keep=preset.table.keep_value,
            is_date=is_date,
            is_sample=True,
        )


def completed(preset: StreamPreset, means: NDArray[np.float64]) -> StreamPreset:
    """The preset of a table that knows what is put in for missing values.

    :param means: [D], of the columns of X in the training rows, NaN of those without a value.
    :raises ValueError: naming a column without any value in the training rows.
    """
    if preset.schema is None or preset.table is None:
        return preset
    schema = preset.schema.with_means(means, "the stream")
    return replace(preset, schema=schema, select=_selector(schema, preset.table))


def _selector(schema: Schema, spec: TableSpec) -> Callable[[Shards, int], Selection]:
    columns = _columns(schema)
    is_imputed = schema.missing == "impute"
    encoder = replace(schema, missing="impute")  # who reads the blocks counts what is missing

    def select(shards: Shards, number: int) -> Selection:
        block = shards.block(number)
        table = shards.table(number)
        path = shards.files[block.file]
        first = block.first_row
        with counting.hinted():
            used = usable(table, columns, schema.target_names, spec, where=path, first_row=first)
        # X and Y of the rows that are used; all others are NaN
        X = encoder.encode(used.found, where=path, first_row=first)
        Y = encoder.encode_targets(used.found, where=path, first_row=first).astype(np.float64)
        X = schema.filled(X) if is_imputed else X
        if len(used.kept) < len(table):
            X, Y = (_spread(values, used.kept, len(table)) for values in (X, Y))
        if is_imputed:
            return Selection(X, Y, ~used.is_open, used.is_bad)
        return Selection(X, Y, np.ones(len(table), bool), used.is_bad | used.is_open)

    return select


def _columns(schema: Schema) -> dict[str, Column]:
    return {f.name: f.column for f in schema.columns} | {column.name: column for column in schema.targets}


def _spread(values: NDArray[np.float64], rows: NDArray[np.int64], num_rows: int) -> NDArray[np.float64]:
    """Values of some of the rows; NaN for others."""
    spread = np.full((num_rows, values.shape[1]), np.nan)
    spread[rows] = values
    return spread


def _open(pattern: str, spec: TableSpec) -> Shards:
    """The files with the columns of the first one; others need not have those of --ignore."""
    path = find_files(pattern)[0]
    columns = list(columns_of(path))
    check_names([name.strip() for name in columns], path)
    layout: Layout = {name.strip(): Field(name, "any") for name in columns}
    fewer = {name: field for name, field in layout.items() if name not in spec.ignore}
    return open_shards(pattern, layouts=[layout, fewer], drop_bad_rows=spec.bad_rows == "drop")


def _head(shards: Shards) -> _Head:
    blocks: list[pa.Table] = []
    # Blocks, until there are enough rows
    for number in range(min(len(shards.blocks), _HEAD_BLOCKS)):
        blocks.append(shards.table(number))
        if sum(map(len, blocks)) >= HEAD_ROWS:
            break
    num_rows = sum(map(len, blocks))
    try:
        table = pa.concat_tables(blocks, promote_options="permissive")
    except pa.ArrowTypeError:  # the files have different types: the first one decides
        table = blocks[0]
    table = table.slice(0, HEAD_ROWS)
    last = shards.block(len(blocks) - 1).file
    where = shards.files[0] if last == 0 else f"{shards.files[0]} to {shards.names[last]}"
    is_whole = len(blocks) == len(shards.blocks) and len(table) == num_rows
    hint = "" if is_whole else f" The first {len(table)} rows of the stream decide what its columns are."
    return _Head(table, where, shards.delimiter, hint)


def _known(head: _Head, spec: TableSpec) -> Known:
    """What the first rows say.

    :raises ValueError: as `tables.columns_of`; if there is no target, or no input; text of too many levels.
    """
    table = head.table
    where = head.where
    if not spec.target:
        raise ValueError(f"--target must be a column of {where}, got none; it has {quoted(table.column_names)}.")
    try:
        columns = tables.columns_of(table, spec.target, spec, where=where, delimiter=head.delimiter)
        # Columns that are empty in the first rows: the user may say what they are
        inputs = [name for name in columns if name not in spec.target]
        ignored = [name for name in inputs if columns[name].kind == "ignored" and name not in spec.ignore]
        empty = [name for name in ignored if counting.first_value(table[name], spec) is None]
        if head.hint:
            columns |= {
                name: replace(columns[name], note=f"{columns[name].note} (in the first rows)") for name in ignored
            }
            columns |= _as_said(empty, table.column_names, spec, where)
        survey = counting.look_at(table, columns, spec, where=where)
        features_of([columns[name] for name in inputs if columns[name].kind == "text"], survey, spec, where)
    except ValueError as error:
        raise ValueError(f"{error}{head.hint}") from error
    if all(columns[name].kind == "ignored" for name in inputs):
        raise ValueError(
            f"{where} has no column to predict {spec.target[0]!r} from; add inputs, or name them by --features."
        )
    empty = [name for name in empty if columns[name].kind == "ignored"]
    typed = {name for name in columns if pa.types.is_dictionary(table[name].type)}
    return Known(columns, tuple(empty), frozenset(typed | set(spec.categorical)), survey)


def _as_said(empty: Collection[str], names: Sequence[str], spec: TableSpec, where: str) -> dict[str, Column]:
    """Columns without a value in the first rows whose kind the user tells."""
    said = forced_columns(names, where=where, categorical=spec.categorical, numeric=spec.numeric, dates=spec.dates)
    return {
        name: Column(
            name,
            kind,
            decimal="," if manner == "comma" else ".",
            date_format=manner if "%" in manner else "",
            note="empty in the first rows",
        )
        for name, (kind, manner) in said.items()
        if name in empty
    }


def _narrowed(shards: Shards, columns: Mapping[str, Column], empty: Collection[str]) -> Shards:
    """The same files, of which only the columns that are used are read."""
    layout: Layout = {
        name: field
        for name, field in shards.layouts[0].items()
        if name in empty or (name in columns and columns[name].kind != "ignored")
    }
    for path, file_layout in zip(shards.files, shards.layouts, strict=True):
        if absent := set(layout) - set(file_layout):
            raise ValueError(f"{path} must have the columns of the stream, but lacks {min(absent)!r}; leave it out.")
    return replace(shards, layouts=(layout,) * len(shards.files))

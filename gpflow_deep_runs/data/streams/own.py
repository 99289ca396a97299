"""Your own table as a stream: its columns are what they are in memory, and so are X and Y of each block.

    shards, preset = open_table("shards/*.parquet", TableSpec(target=("price",), missing="impute"))
    preset.schema                                       # but for what is put in for missing values, see `scan.scan`

What the columns are is found out from the first rows, :data:`HEAD_ROWS`. Levels, labels, the parts of dates that vary
and where values are missing follow from all rows, which takes a pass over them unless all inputs are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from gpflow_deep_runs.data import tables
from gpflow_deep_runs.data.files.libraries import pa
from gpflow_deep_runs.data.rows import Part
from gpflow_deep_runs.data.streams.files import Layout, Shards, column_names, find_files, open_shards
from gpflow_deep_runs.data.streams.moments import Moments
from gpflow_deep_runs.data.streams.presets import Selection, StreamPreset
from gpflow_deep_runs.data.streams.stream import in_order
from gpflow_deep_runs.data.table import doubts
from gpflow_deep_runs.data.table.columns import Column, parse
from gpflow_deep_runs.data.table.inference import MAX_LEVELS
from gpflow_deep_runs.data.table.schema import Schema
from gpflow_deep_runs.data.table.spec import TableSpec, forced_columns
from gpflow_deep_runs.data.table.survey import Facts, Survey, features_of, look, merged, usable
from gpflow_deep_runs.data.table.targets import MAX_CLASSES
from gpflow_deep_runs.data.values.cells import MARKERS, quoted

__all__ = ["HEAD_ROWS", "Foot", "check_feet", "check_sentinels", "completed", "foot_of", "open_table", "reopen"]

HEAD_ROWS = 20_000
_HEAD_BLOCKS = 16
"""Rows that decide what the columns are, and blocks that they are in: fewer rows of tables with many columns."""

_OF_FILES = ("encoding", "names", "sheet", "max_bytes", "skip_rows", "skip_footer")
"""Flags of a table that a stream does not have."""

_OF_LATER_ROWS = (
    " The first rows of a stream decide what its columns are; --categorical overrules them, and --bad_rows=drop leaves "
    "such rows out."
)


class _Known(NamedTuple):
    """What the first rows say.

    :ivar columns: how each column is read; the targets among them.
    :ivar empty: columns that are left out as they have no value there.
    :ivar fixed: categories of any number of levels, by their type or by --categorical.
    :ivar survey: of the first rows.
    """

    columns: Mapping[str, Column]
    empty: tuple[str, ...]
    fixed: frozenset[str]
    survey: Survey


def open_table(pattern: str, spec: TableSpec, *, progress: bool = False) -> tuple[Shards, StreamPreset]:
    """Find out what the columns of a stream are, and open its files.

    :param pattern: the files, see `files.find_files`.
    :param progress: show a bar on standard error if all rows have to be looked at.
    :raises ValueError: as `tables.read_table`, and as `files.open_shards`.
    """
    for flag in _OF_FILES:
        if flag in spec.given():
            raise ValueError(
                f"--{flag} is for gpflow-deep convert and for tables that are read as a whole; leave it out."
            )
    # The first rows tell what the columns are.
    shards = _open(pattern, spec)
    head, where, is_whole = _head(shards)
    _check_totals(shards, head, where, spec)
    with _hinted("" if is_whole else f" The first {len(head)} rows of the stream decide what its columns are."):
        known = _look_at_head(head, where, shards.delimiter, spec, is_whole=is_whole)
    shards = _narrowed(shards, known.columns, known.empty)
    columns = dict(known.columns)
    survey = known.survey
    # If there are more, one pass counts levels, labels and missing values of all rows.
    if not is_whole:
        survey = _count(shards, known, spec, progress=progress)
        columns = _grown(known, survey)
    schema = Schema.of(columns, spec.target, survey, spec, where=f"the stream {pattern!r}")
    return shards, _preset(schema, spec, pattern)


def reopen(pattern: str, spec: TableSpec, schema: Schema) -> tuple[Shards, StreamPreset]:
    """Open the files of a stream of which the schema is known.

    :raises ValueError: as `files.open_shards`.
    """
    shards = _narrowed(_open(pattern, spec), _columns(schema), ())
    return shards, _preset(schema, spec, pattern)


def completed(preset: StreamPreset, means: NDArray[np.float64]) -> StreamPreset:
    """The preset of a table that knows what is put in for missing values.

    :param means: [D], of the columns of X in the training rows, NaN of those without a value.
    :raises ValueError: naming a column without any value in the training rows.
    """
    if preset.schema is None or preset.table is None:
        return preset
    schema = preset.schema.with_means(means, "the stream")
    return replace(preset, schema=schema, select=_selector(schema, preset.table))


# Rows that sum up others, and values that may stand for missing ones.


class Foot(NamedTuple):
    """Of the columns of numbers of a block what tells whether the last row of its file sums up the others.

    :ivar file: number of the file.
    :ivar above: moments of its rows, without that last one.
    :ivar last: the last row of the file [C], if it is in the block.
    """

    file: int
    above: Moments
    last: NDArray[np.float64] | None

    def merge(self, below: Foot) -> Foot:
        """That of both blocks of a file, of which `below` comes next."""
        return Foot(self.file, self.above.merge(below.above), below.last)


def foot_of(
    shards: Shards, preset: StreamPreset, number: int, X: NDArray[np.float64], Y: NDArray[np.float64]
) -> Foot | None:
    """What is known of a block of your own table; None of others, or if rows that sum up others are kept."""
    if preset.schema is None or preset.table is None or preset.table.file.total_rows == "keep":
        return None
    # The columns of numbers, and targets of a regression.
    numeric = {f.name for f in preset.schema.columns if f.column.kind == "number"}
    columns = [d for d, name in enumerate(preset.feature_names) if name in numeric]
    values = X[:, columns] if preset.class_names else np.concatenate([X[:, columns], Y], axis=1)
    values = np.where(np.isinf(values), np.nan, values)
    # The last row of a file is not among those that it may sum up.
    file = shards.block(number).file
    is_last = number + 1 == len(shards.blocks) or shards.block(number + 1).file != file
    last = values[-1] if is_last and len(values) else None
    return Foot(file, Moments.of(values[:-1] if is_last else values), last)


def check_feet(shards: Shards, feet: Sequence[Foot]) -> None:
    """Ask whether a file ends with a total.

    :param feet: of each file, in their order.
    :raises ValueError: if the numbers in the last row of a file are the sums of their columns in it, or in all.
    """
    earlier: Moments | None = None
    for file, above, end in feet:
        if end is None:
            continue
        # Above the last row are those of its file, or those of earlier files, too.
        whole = above if earlier is None else earlier.merge(above)
        if any(_is_sum(np.nan_to_num(end), rows) for rows in (above, whole)):
            row = int(shards.blocks[shards.blocks[:, 0] == file, 3].sum()) - 1
            raise ValueError(_total(row, shards.files[file], "its numbers are the sums of their columns"))
        earlier = whole.merge(Moments.of(end[None]))


def _is_sum(last: NDArray[np.float64], above: Moments) -> bool:
    """Whether all numbers of a row are the sums of those above; zeros say nothing."""
    high = np.where(above.count > 0, np.maximum(np.abs(above.low), np.abs(above.high)), 0.0)
    is_told = (last != 0) & (high > 0)
    size = above.count * np.sqrt(np.square(above.mean) + above.squares / np.maximum(above.count, 1))
    agrees = np.abs(last - above.count * above.mean) <= 1e-9 * size
    # A sum that is no larger than what it sums up may be a row.
    return bool(is_told.any() and agrees[is_told].all() and (np.abs(last) > high)[is_told].any())


def check_sentinels(preset: StreamPreset, sample: Part, moments: tuple[Moments, Moments]) -> None:
    """Ask what values of your own table are that may stand for a missing one, by a sample and the ranges of all rows.

    :param sample: of the training rows.
    :param moments: of X and Y in all training rows.
    :raises ValueError: as `doubts.check_sentinels`.
    """
    if preset.schema is None or preset.table is None:
        return
    # The sample may lack the ends, which the moments have.
    x, y = moments
    ends = np.stack([np.concatenate([x.low, y.low]), np.concatenate([x.high, y.high])])
    values = np.concatenate([np.concatenate([sample.X, sample.Y], axis=1), ends])
    places = {name: d for d, name in enumerate([*preset.feature_names, *preset.target_names])}
    labels = preset.target_names if preset.class_names else ()
    kinds = {name: column.kind for name, column in _columns(preset.schema).items() if name not in labels}
    dates = [name for name, kind in kinds.items() if kind == "date" and f"{name}.day" in places]
    found = {name: values[:, places[name]] for name, kind in kinds.items() if kind == "number"}
    found |= {name: values[:, places[f"{name}.day"]] for name in dates}
    doubts.check_sentinels(found, where="the stream", dates=dates, keep=preset.table.keep_value, is_sample=True)


def _check_totals(shards: Shards, head: pa.Table, where: str, spec: TableSpec) -> None:
    """:raises ValueError: naming a row among the first or the last ones that sums up others."""
    if spec.file.total_rows == "keep":
        return
    # Totals stand among the first rows, or at the end of the last file.
    end = len(shards.blocks) - 1
    last = shards.block(end)
    for table, file, first_row in ((head, where, 0), (shards.table(end), shards.files[last.file], last.first_row)):
        if totals := doubts.totals_of_texts(table):
            row, why = next(iter(totals.items()))
            raise ValueError(_total(first_row + row, file, why))


def _total(row: int, where: str, why: str) -> str:
    return (
        f"row {row} (from 0) of {where} seems to sum up others, as {why}; leave such rows out of the files, or give "
        "--total_rows=keep if they are rows like the others."
    )


# Blocks as X and Y.


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


def _selector(schema: Schema, spec: TableSpec) -> Callable[[Shards, int], Selection]:
    columns = _columns(schema)
    is_imputed = schema.missing == "impute"
    encoder = replace(schema, missing="impute")  # who reads the blocks counts what is missing

    def select(shards: Shards, number: int) -> Selection:
        block = shards.block(number)
        table = shards.table(number)
        path = shards.files[block.file]
        first = block.first_row
        with _hinted(_OF_LATER_ROWS):
            used = usable(table, columns, schema.target_names, spec, where=path, first_row=first)
        # X and Y of the rows that are used; all others are NaN.
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


# What the first rows say.


@contextmanager
def _hinted(hint: str) -> Iterator[None]:
    """Errors end with a hint."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error}{hint}") from error


def _open(pattern: str, spec: TableSpec) -> Shards:
    """The files with the columns of the first one; others need not have those of --ignore."""
    layout: Layout = {name.strip(): name for name in column_names(find_files(pattern)[0])}
    fewer = {name: column for name, column in layout.items() if name not in spec.ignore}
    return open_shards(pattern, layouts=[layout, fewer], drop_bad_rows=spec.bad_rows == "drop")


def _head(shards: Shards) -> tuple[pa.Table, str, bool]:
    """The first rows, where they are, and whether these are all."""
    blocks: list[pa.Table] = []
    # Blocks, until there are enough rows.
    while sum(map(len, blocks)) < HEAD_ROWS and len(blocks) < min(len(shards.blocks), _HEAD_BLOCKS):
        blocks.append(shards.table(len(blocks)))
    try:
        table = pa.concat_tables(blocks, promote_options="permissive")
    except pa.ArrowTypeError:  # the files have different types: the first one decides
        table = blocks[0]
    table = table.slice(0, HEAD_ROWS)
    last = shards.block(len(blocks) - 1).file
    where = shards.files[0] if last == 0 else f"{shards.files[0]} to {shards.names[last]}"
    return table, where, len(blocks) == len(shards.blocks) and len(table) == sum(map(len, blocks))


def _look_at_head(table: pa.Table, where: str, delimiter: str, spec: TableSpec, *, is_whole: bool) -> _Known:
    """What the first rows say.

    :raises ValueError: as `tables.columns_of`; if there is no target, or no input; text of too many levels.
    """
    if not spec.target:
        raise ValueError(f"--target must be a column of {where}, got none; it has {quoted(table.column_names)}.")
    columns = tables.columns_of(table, spec.target, spec, where=where, delimiter=delimiter)
    # Columns that are empty in the first rows: the user may say what they are.
    inputs = [name for name in columns if name not in spec.target]
    ignored = [name for name in inputs if columns[name].kind == "ignored" and name not in spec.ignore]
    empty = [name for name in ignored if _first_value(table[name], spec) is None]
    if not is_whole:
        columns |= {name: replace(columns[name], note=f"{columns[name].note} (in the first rows)") for name in ignored}
        columns |= _as_said(empty, table.column_names, spec, where)
    survey = _survey(table, columns, spec, where=where)
    features_of([columns[name] for name in inputs if columns[name].kind == "text"], survey, spec, where)
    if all(columns[name].kind == "ignored" for name in inputs):
        raise ValueError(
            f"{where} has no column to predict {spec.target[0]!r} from; add inputs, or name them by --features."
        )
    empty = [name for name in empty if columns[name].kind == "ignored"]
    typed = {name for name in columns if pa.types.is_dictionary(table[name].type)}
    return _Known(columns, tuple(empty), frozenset(typed | set(spec.categorical)), survey)


def _as_said(empty: Collection[str], names: Sequence[str], spec: TableSpec, where: str) -> dict[str, Column]:
    """Columns without a value in the first rows whose kind the user tells."""
    # Flags tell the kind, and how numbers or dates are written.
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
        name: column
        for name, column in shards.layouts[0].items()
        if name in empty or (name in columns and columns[name].kind != "ignored")
    }
    # Every file must have them.
    for path, file_layout in zip(shards.files, shards.layouts, strict=True):
        if absent := set(layout) - set(file_layout):
            raise ValueError(f"{path} must have the columns of the stream, but lacks {min(absent)!r}; leave it out.")
    return replace(shards, layouts=(layout,) * len(shards.files))


# What all rows say.


def _survey(
    table: pa.Table, columns: Mapping[str, Column], spec: TableSpec, *, where: str, first_row: int = 0
) -> Survey:
    """What the cells of those rows say that are used.

    :raises ValueError: as `survey.usable`.
    """
    targets = [name for name in spec.target if name in columns]
    used = usable(table, columns, targets, spec, where=where, first_row=first_row)
    return look(used.found, columns.values(), targets=targets)


def _count(shards: Shards, known: _Known, spec: TableSpec, *, progress: bool) -> Survey:
    """What all rows say: levels, labels, ranges of dates, missing values. Numbers alone need not be read for it.

    :raises ValueError: naming file, row and column: a cell that is not what the first rows are, or a value in a column
        that is empty there; text of too many levels, as soon as they are seen.
    """
    used = {name: column for name, column in known.columns.items() if column.kind != "ignored"}
    counted = {name: column for name, column in used.items() if _is_counted(column, known.survey[name], spec)}
    if counted and (spec.bad_rows == "drop" or spec.missing == "impute"):  # which rows are left out depends on all
        counted = used
    # One pass over these; a second one over all, if an error has to name every column with missing values.
    survey = _pass(shards, known, counted, spec, progress) if counted or known.empty else {}
    if spec.missing != "impute" and any(facts.num_missing for facts in survey.values()) and counted != used:
        survey = _pass(shards, known, used, spec, progress)
    return {name: Facts(is_whole=False) for name in used} | dict(survey)


def _pass(shards: Shards, known: _Known, columns: Mapping[str, Column], spec: TableSpec, progress: bool) -> Survey:
    def of_block(number: int) -> Survey:
        block = shards.block(number)
        path = shards.files[block.file]
        table = shards.table(number, {*columns, *known.empty})
        for name in known.empty:
            _check_empty(table[name], name, spec, path, block.first_row)
        with _hinted(_OF_LATER_ROWS):
            return _survey(table, columns, spec, where=path, first_row=block.first_row)

    # Blocks are looked at beside each other, and merged in their order.
    survey: Survey = {}
    num_blocks = len(shards.blocks)
    surveys = in_order(of_block, range(num_blocks))
    for of_rows in tqdm(surveys, "count", num_blocks, unit="block", disable=None if progress else True):
        survey = merged(survey, of_rows) if survey else of_rows
        if spec.rare is None:  # text of too many levels
            inputs = [column for name, column in _grown(known, survey).items() if name not in spec.target]
            features_of([column for column in inputs if column.name in columns], survey, spec, "the stream")
    return survey


def _grown(known: _Known, survey: Survey) -> dict[str, Column]:
    """The columns; a category that has as many levels as text is text, as in a table that is seen at once."""
    is_text = {
        name
        for name, facts in survey.items()
        if known.columns[name].kind == "category" and name not in known.fixed and len(facts.counts) > MAX_LEVELS
    }
    return {name: replace(c, kind="text") if name in is_text else c for name, c in known.columns.items()}


def _is_counted(column: Column, facts: Facts, spec: TableSpec) -> bool:
    """Whether the first rows say too little of a column."""
    # Levels and dates of later rows may be others; so may gaps, and labels.
    if column.kind in ("category", "text", "date"):
        return True
    is_target = column.name in spec.target
    if spec.missing == "impute" and not is_target:
        return True
    if not is_target or len(spec.target) > 1 or column.kind == "time" or spec.task == "regression":
        return False
    return facts.is_whole and (spec.task is not None or len(facts.counts) <= MAX_CLASSES)


def _first_value(values: pa.ChunkedArray, spec: TableSpec) -> tuple[int, str] | None:
    """Row and text of the first value in a column, None if all are missing."""
    # Read as texts, as which every cell is a value or missing.
    texts = parse(values, Column("", "category"), na_values=(*MARKERS, *spec.na_values), where="")
    rows = np.flatnonzero(texts.codes >= 0)
    return (int(rows[0]), str(texts[rows[0]])) if len(rows) else None


def _check_empty(values: pa.ChunkedArray, name: str, spec: TableSpec, where: str, first_row: int) -> None:
    # A value where the first rows have none: nobody knows what it is.
    if (row_and_text := _first_value(values, spec)) is not None:
        raise ValueError(
            f"column {name!r} is empty in the first rows of the stream, but {where} has {row_and_text[1]!r} in row "
            f"{first_row + row_and_text[0]} (from 0); say what it is with --numeric={name}, --categorical={name} or "
            f"--ignore={name}."
        )

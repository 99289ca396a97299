"""What has to be known of all rows of your own table before its columns become X: one pass, over as few as possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from gpflow_deep_runs.data.cells import MARKERS
from gpflow_deep_runs.data.columns import Column, parse
from gpflow_deep_runs.data.inference import MAX_LEVELS
from gpflow_deep_runs.data.libraries import pa
from gpflow_deep_runs.data.spec import TableSpec
from gpflow_deep_runs.data.streams.shards import Shards
from gpflow_deep_runs.data.streams.stream import in_order
from gpflow_deep_runs.data.survey import Facts, Survey, features_of, look, usable
from gpflow_deep_runs.data.targets import MAX_CLASSES

__all__ = ["Known", "count", "first_value", "grown", "hinted", "look_at"]


class Known(NamedTuple):
    """What the first rows of a stream say.

    :ivar columns: how each column is read; the targets among them.
    :ivar empty: columns that are left out as they have no value there.
    :ivar fixed: categories of any number of levels, by their type or by --categorical.
    :ivar survey: of the first rows.
    """

    columns: Mapping[str, Column]
    empty: tuple[str, ...]
    fixed: frozenset[str]
    survey: Survey


@contextmanager
def hinted() -> Iterator[None]:
    """Errors say why a cell must be what it is not."""
    try:
        yield
    except ValueError as error:
        raise ValueError(
            f"{error} The first rows of a stream decide what its columns are; --categorical overrules them, and "
            "--bad_rows=drop leaves such rows out."
        ) from error


def look_at(
    table: pa.Table, columns: Mapping[str, Column], spec: TableSpec, *, where: str, first_row: int = 0
) -> Survey:
    """What the cells of some rows say; of those rows that are used.

    :raises ValueError: as `survey.usable`.
    """
    targets = [name for name in spec.target if name in columns]
    used = usable(table, columns, targets, spec, where=where, first_row=first_row)
    return look(used.found, columns.values(), targets=targets)


def count(shards: Shards, known: Known, spec: TableSpec, *, progress: bool) -> Survey:
    """What all rows say: levels, labels, ranges of dates, missing values. Numbers alone need not be read for it.

    :param progress: show a bar on standard error.
    :raises ValueError: naming file, row and column: a cell that is not what the first rows are, or a value in a column
        that is empty there; text of too many levels, as soon as they are seen.
    """
    # The columns of which the first rows say too little
    used = [name for name, column in known.columns.items() if column.kind != "ignored"]
    counted = [name for name in used if _is_counted(known.columns[name], known.survey.facts[name], spec)]
    if counted and (spec.bad_rows == "drop" or spec.missing == "impute"):  # which rows are left out depends on all
        counted = used
    survey = Survey(int(shards.blocks[:, 3].sum()), {})
    # One pass over these; a second one over all, if an error has to name every column with missing values
    if counted or known.empty:
        survey = _pass(shards, known, counted, spec, progress)
    if spec.missing == "error" and any(facts.num_missing for facts in survey.facts.values()) and counted != used:
        survey = _pass(shards, known, used, spec, progress)  # for the count of every column
    return Survey(survey.num_rows, {name: Facts(is_whole=False) for name in used} | dict(survey.facts))


def grown(known: Known, survey: Survey) -> dict[str, Column]:
    """The columns; a category that has as many levels as text is text, as in a table that is seen at once."""
    return {
        name: replace(column, kind="text")
        if column.kind == "category" and name not in known.fixed and len(survey.facts[name].counts) > MAX_LEVELS
        else column
        for name, column in known.columns.items()
    }


def first_value(values: pa.ChunkedArray, spec: TableSpec) -> tuple[int, str] | None:
    """Row and text of the first value in a column, None if all are missing."""
    texts = parse(values, Column("", "category"), na_values=(*MARKERS, *spec.na_values), where="")
    rows = np.flatnonzero(texts.codes >= 0)
    return (int(rows[0]), str(texts[rows[0]])) if len(rows) else None


def _is_counted(column: Column, facts: Facts, spec: TableSpec) -> bool:
    """Whether the first rows say too little of a column."""
    if column.kind in ("category", "text", "date"):
        return True
    is_target = column.name in spec.target
    if spec.missing == "impute" and not is_target:
        return True
    if not is_target or len(spec.target) > 1 or column.kind == "time" or spec.task == "regression":
        return False
    return facts.is_whole and (spec.task is not None or len(facts.counts) <= MAX_CLASSES)


def _pass(shards: Shards, known: Known, names: Sequence[str], spec: TableSpec, progress: bool) -> Survey:
    columns = {name: known.columns[name] for name in names}

    def of_block(number: int) -> Survey:
        block = shards.block(number)
        path = shards.files[block.file]
        table = shards.table(number, {*names, *known.empty})
        for name in known.empty:
            _check_empty(table[name], name, spec, path, block.first_row)
        with hinted():
            return look_at(table, columns, spec, where=path, first_row=block.first_row)

    # Blocks are looked at beside each other, and merged in their order
    total: Survey | None = None
    looks = in_order(of_block, range(len(shards.blocks)))
    bar = tqdm(looks, total=len(shards.blocks), unit="block", desc="count", disable=None if progress else True)
    for survey in bar:
        total = survey if total is None else total.merge(survey)
        _check_growth(known._replace(columns=columns), total, spec)
    return total or Survey(0, {})


def _check_growth(known: Known, survey: Survey, spec: TableSpec) -> None:
    if spec.rare is None:
        inputs = [column for name, column in grown(known, survey).items() if name not in spec.target]
        features_of(inputs, survey, spec, "the stream")


def _check_empty(values: pa.ChunkedArray, name: str, spec: TableSpec, where: str, first_row: int) -> None:
    if (row_and_text := first_value(values, spec)) is not None:
        raise ValueError(
            f"column {name!r} is empty in the first rows of the stream, but {where} has {row_and_text[1]!r} in row "
            f"{first_row + row_and_text[0]} (from 0); say what it is with --numeric={name}, --categorical={name} or "
            f"--ignore={name}."
        )

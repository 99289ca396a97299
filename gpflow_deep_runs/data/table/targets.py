"""What is predicted: the task that a target's values allow, the names of its classes, and Y.

| target                                                                                    | task         |
|-------------------------------------------------------------------------------------------|--------------|
| text, levels or true/false with two different values; two different whole numbers         | "binary"     |
| text or levels with at most 20 different values, or at most 5% of N                       | "multiclass" |
| at most 20 different whole numbers that are also at most 5% of N                          | "multiclass" |
| all other numbers, also written as text; times of day; several columns                    | "regression" |
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpflow_deep_runs.data.files.libraries import pd
from gpflow_deep_runs.data.table.columns import Column
from gpflow_deep_runs.data.table.spec import Task
from gpflow_deep_runs.data.table.survey import Facts, Parsed, Survey, in_order, labels

__all__ = ["MAX_CLASSES", "class_names_of", "encoded", "task_of"]

MAX_CLASSES = 20
_CLASS_FRACTION = 0.05


def task_of(columns: Sequence[Column], survey: Survey, task: Task | None, where: str) -> Task:
    """What the targets are.

    :param columns: how each is read.
    :param survey: of their cells.
    :param task: what the user says, if anything.
    :raises ValueError: naming the target: it does not vary, it is a date, or its values are not those of the task.
    """
    for column in columns:
        _check_kind(column, where)
        _check_varies(column, survey[column.name], task, where)
    if len(columns) > 1:
        _check_several(columns, task, where)
        return "regression"
    column = columns[0]
    facts = survey[columns[0].name]
    chosen_task = task or _inferred(column, facts, where)
    # The values must fit the task.
    misfit = f"--task={chosen_task} does not fit the target {column.name!r} of {where}: it"
    if chosen_task == "regression" and _is_text(column):
        raise ValueError(f"{misfit} holds text, not numbers; choose binary or multiclass, or another target.")
    if chosen_task != "regression" and not facts.is_whole:
        raise ValueError(f"{misfit} holds fractions or too many values, not labels; choose regression.")
    if chosen_task == "binary" and len(facts.counts) != 2:
        raise ValueError(
            f"{misfit} must have 2 different values, got {len(facts.counts)}; choose another task or target."
        )
    return chosen_task


def class_names_of(column: Column, facts: Facts) -> tuple[str, ...]:
    """Labels in the order of their numbers: whole numbers by size, false before true, texts in their order."""
    if column.kind == "number":
        return tuple(sorted(facts.counts, key=float))
    if column.kind == "boolean":
        return tuple(labels(np.array([0.0, 1.0]), column).categories)
    return in_order(facts.counts, column.order)


def encoded(
    columns: Sequence[Column], found: Parsed, task: Task, classes: Sequence[str], *, where: str, first_row: int = 0
) -> np.ndarray:
    """Targets of a regression, float64 [n, P] with NaN where missing, or labels, int64 [n, 1] with -1 where missing.

    :param found: cells of the columns.
    :param classes: names of the labels 0, 1, ...; () in regression.
    :param first_row: number of the first row in what `where` names, for errors.
    :raises ValueError: naming the first label that is none of the classes.
    """
    if task == "regression":
        return np.stack([np.asarray(found[column.name], np.float64) for column in columns], axis=1)
    # The numbers of the classes, and -1 where there is no value.
    column = columns[0]
    texts = labels(found[column.name], column)
    class_numbers = pd.Index(classes, dtype=object).get_indexer(texts.categories)
    codes = np.append(class_numbers, -1).astype(np.int64)[texts.codes]
    is_unknown = (codes < 0) & (texts.codes >= 0)
    if is_unknown.any():
        row = int(is_unknown.argmax())
        raise ValueError(
            f"column {column.name!r} of {where} has the value {texts[row]!r} in row {first_row + row} (from 0), no "
            f"class of the training data ({', '.join(map(repr, classes))}); drop such rows, or leave the column out to "
            "predict all rows without scores."
        )
    return codes[:, None]


def _is_text(column: Column) -> bool:
    return column.kind in ("category", "text")


def _check_kind(column: Column, where: str) -> None:
    if column.kind == "ignored":
        raise ValueError(f"the target {column.name!r} of {where} has no values; choose another --target.")
    if column.kind == "date":
        raise ValueError(
            f"the target {column.name!r} of {where} is a date; give a number, such as the days since a date, or choose "
            "another --target."
        )


def _check_varies(column: Column, facts: Facts, task: Task | None, where: str) -> None:
    if facts.is_whole and len(facts.counts) < 2:
        value = next(iter(facts.counts), "missing")
        hint = f" --task={task} needs different values;" if task else ""
        raise ValueError(
            f"the target {column.name!r} of {where} must vary, but it is {value!r} in every row;{hint} choose "
            "another --target."
        )


def _check_several(columns: Sequence[Column], task: Task | None, where: str) -> None:
    names = ", ".join(repr(column.name) for column in columns)
    if task not in (None, "regression"):
        raise ValueError(f"--task={task} needs one target, got several columns, {names} of {where}; give one --target.")
    text = [column.name for column in columns if _is_text(column)]
    if text:
        raise ValueError(
            f"several targets are predicted together as numbers, but {text[0]!r} of {where} holds text; give it as the "
            "only --target, or leave it out."
        )


def _inferred(column: Column, facts: Facts, where: str) -> Task:
    if not facts.is_whole or column.kind == "time":
        return "regression"
    # Few different values are labels, where they are also few beside the rows.
    distinct = len(facts.counts)
    num_known = sum(facts.counts.values())
    if distinct == 2:
        return "binary"
    if not _is_text(column):
        return "multiclass" if distinct <= min(MAX_CLASSES, _CLASS_FRACTION * num_known) else "regression"
    # Texts cannot be a regression.
    if distinct > max(MAX_CLASSES, _CLASS_FRACTION * num_known):
        raise ValueError(
            f"target {column.name!r} of {where} is text with {distinct} different values in {num_known} rows, too many "
            "for classes; choose another target or group its values."
        )
    return "multiclass"

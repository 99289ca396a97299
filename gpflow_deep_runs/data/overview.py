"""What was found out about the columns of a table, as a table for a user to check."""

import itertools
from collections.abc import Iterator, Sequence

from gpflow_deep_runs.data.columns import Column
from gpflow_deep_runs.data.features import Feature

__all__ = ["overview"]

_MAX_SHOWN = 4
_MIN_JOINED = 4


def overview(
    columns: Sequence[Feature], targets: Sequence[Column], task: str, class_names: Sequence[str]
) -> list[list[str]]:
    """Rows of text below a header: each column, what it is read as, details, and what it becomes in X or Y.

    From four on, neighbours that are read alike are one row: "x0 ... x783 (784 columns)".
    """
    rows = [["column", "read as", "details", "becomes"]]
    for _, group in itertools.groupby(columns, lambda feature: (feature.column.kind, _details(feature))):
        rows += _rows(list(group))
    what = f"target, {task}{f': {_shown(class_names)}' if class_names else ''}"
    return rows + [[column.name, column.kind, column.note, what] for column in targets]


def _rows(alike: Sequence[Feature]) -> Iterator[list[str]]:
    kind = alike[0].column.kind
    details = _details(alike[0])
    if len(alike) < _MIN_JOINED:
        yield from ([feature.name, kind, details, _becomes(feature.names)] for feature in alike)
        return
    names = [name for feature in alike for name in feature.names]
    yield [f"{alike[0].name} ... {alike[-1].name} ({len(alike)} columns)", kind, details, _becomes(names)]


def _details(feature: Feature) -> str:
    details = []
    column = feature.column
    if column.kind == "ignored" and not column.note:
        details.append("by --ignore")
    if column.kind == "boolean" and column.true[0].lower() != "true":
        details.append(f"{column.true[0]} is 1")
    if feature.levels:
        plural = "s" * (len(feature.levels) > 1)
        details.append(f"{len(feature.levels)} level{plural}: {_shown(feature.levels)}")
    if feature.bins is not None:
        details.append(f"{len(feature.bins.values)} bins")
    if feature.rare:
        details.append(f"{len(feature.rare)} rare ones together")
    if column.date_format:
        details.append(f"as {column.date_format}")
    if feature.num_missing:
        details.append(f"{feature.num_missing} missing")
    return "; ".join([*details, *filter(None, [column.note])])


def _becomes(names: Sequence[str]) -> str:
    if not names:
        return "nothing"
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} ... {names[-1]} ({len(names)} columns)"


def _shown(texts: Sequence[str]) -> str:
    return ", ".join(texts[:_MAX_SHOWN]) + (", ..." if len(texts) > _MAX_SHOWN else "")

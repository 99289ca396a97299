"""How the columns of a table become inputs and targets: what is learned from a table, and all that reads new rows.

    schema = Schema.of(columns, ["price"], survey, spec, where="houses.csv")   # kinds and levels, of all rows
    X = schema.encode(found, where="houses.csv")                               # NaN where a value is missing
    schema = schema.with_means(np.nanmean(X[train], axis=0))                   # what is put in: of training rows alone
    schema = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    X = schema.transform(table, where="new_houses.csv")

Kinds and levels are those of all rows of a table, test rows among them: they hold nothing of the targets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data.files.libraries import pa
from gpflow_deep_runs.data.table.columns import Column
from gpflow_deep_runs.data.table.features import Feature
from gpflow_deep_runs.data.table.spec import Missing, TableSpec, Task, Unknown
from gpflow_deep_runs.data.table.survey import Parsed, Survey, check_missing, features_of, is_missing, parsed
from gpflow_deep_runs.data.table.targets import class_names_of, encoded, task_of

__all__ = ["Schema", "Task"]

_VERSION = 1
_ROWS = 2**13
"""Rows that are encoded together: few, so that all columns of them are in the processor's memory."""

_MAX_SHOWN = 4
_MIN_JOINED = 4


@dataclass(frozen=True)
class Schema:
    """How the columns of a table become X and Y.

    :param columns: the columns besides the targets, those to leave out among them, in the order of X.
    :param targets: the target columns; more than one only in regression, none for rows without targets.
    :param task: "regression", "binary" or "multiclass".
    :param class_names: the label of each class as text, in the order of the integer labels; () in regression.
    :param fills: [D], what is put in where a value of X is missing; None if that is not learned yet.
    :param na_values: texts that stand for a missing value, besides those that always do.
    :param missing: what becomes of missing values in new rows.
    :param unknown: what becomes of levels in new rows that are not known.
    :param names: of all columns of files that do not have them; () if they do.
    :param encoding: of texts; "" to find out.
    :param sheet: of spreadsheets; "" for the first one.
    """

    columns: tuple[Feature, ...]
    targets: tuple[Column, ...]
    task: Task = "regression"
    class_names: tuple[str, ...] = ()
    fills: tuple[float, ...] | None = None
    na_values: tuple[str, ...] = ()
    missing: Missing = "error"
    unknown: Unknown = "error"
    names: tuple[str, ...] = ()
    encoding: str = ""
    sheet: str = ""

    @classmethod
    def of(
        cls,
        columns: Mapping[str, Column],
        targets: Sequence[str],
        survey: Survey,
        spec: TableSpec,
        *,
        where: str,
        chooses: bool = False,
    ) -> Schema:
        """What a model has to know of a table, but for `fills`.

        :param columns: how each column is read, in the order of X; the targets among them.
        :param survey: of the cells of all rows.
        :param where: name of the table, for errors.
        :param chooses: as of `survey.features_of`.
        :raises ValueError: naming the columns and the flags that help: missing values, unless they are to be imputed;
            text of too many levels; targets that do not fit the task, or do not vary.
        """
        # Missing values end the reading unless they are to be imputed.
        if spec.missing != "impute":
            check_missing({name: survey[name].num_missing for name in columns if name in survey}, where)
        # What the inputs become, and what the targets are.
        inputs = [column for name, column in columns.items() if name not in targets]
        features = features_of(inputs, survey, spec, where, chooses=chooses)
        chosen = tuple(columns[name] for name in targets)
        task: Task = task_of(chosen, survey, spec.task, where) if targets else "regression"
        classes = () if task == "regression" else class_names_of(chosen[0], survey[targets[0]])
        return cls(
            features,
            chosen,
            task,
            classes,
            na_values=spec.na_values,
            missing=spec.missing or "error",
            unknown=spec.unknown,
            names=spec.file.names,
            encoding=spec.file.encoding,
            sheet=spec.file.sheet,
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Name of each column of X; "colour=red" for a level."""
        return tuple(name for feature in self.columns for name in feature.names)

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the target columns."""
        return tuple(column.name for column in self.targets)

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the columns that a new table must have."""
        return tuple(feature.name for feature in self.columns if feature.is_used)

    # Inputs.

    def parsed(self, table: pa.Table, *, where: str, first_row: int = 0, has_targets: bool = False) -> Parsed:
        """Cells of the columns that X is made of, and of the targets if they are there; see `survey.parsed`."""
        columns = {f.name: f.column for f in self.columns} | {c.name: c for c in self.targets if has_targets}
        return parsed(columns, table, na_values=self.na_values, where=where, first_row=first_row)

    def encode(self, found: Parsed, *, where: str, first_row: int = 0) -> NDArray[np.float64]:
        """X [n, D] of n rows: numbers as they are, levels as zeros and ones; NaN where a value is missing.

        :param found: cells of the columns, see :meth:`parsed`.
        :param first_row: number of the first row in what `where` names, for errors.
        :raises ValueError: if `missing` or `unknown` is "error" and there is such a value; names column, row and flag.
        """
        if self.missing == "error":
            self._check_missing(found, where)
        X = np.zeros((len(next(iter(found.values()), ())), len(self.feature_names)))
        # Levels become their numbers, and those that are not known are refused.
        used = [feature for feature in self.columns if feature.is_used] if X.size else []
        coded = [feature.coded(found[feature.name]) for feature in used]
        for feature, codes in zip(used, coded, strict=True):
            if self.unknown == "error" and feature.column.kind == "category" and (codes < 0).any():
                feature.check_known(found[feature.name], where, first_row)
        # Each feature writes its own columns of X, of few rows at a time.
        ends = np.cumsum([len(feature.names) for feature in used]).tolist()
        places = [slice(end - len(feature.names), end) for feature, end in zip(used, ends, strict=True)]
        for first in range(0, len(X), _ROWS):
            rows = slice(first, first + _ROWS)
            for feature, codes, place in zip(used, coded, places, strict=True):
                feature.encode(codes[rows], X[rows, place])
        return X

    def transform(self, table: pa.Table, *, where: str, first_row: int = 0) -> NDArray[np.float64]:
        """X [n, D] of a table's rows; `fills`, if they are learned, are put in where values are missing."""
        cells = self.parsed(table, where=where, first_row=first_row)
        return self.filled(self.encode(cells, where=where, first_row=first_row))

    def encode_targets(self, found: Parsed, *, where: str, first_row: int = 0) -> np.ndarray:
        """Y: targets [n, P], NaN where missing, or labels [n, 1], -1 where missing; see `targets.encoded`."""
        return encoded(self.targets, found, self.task, self.class_names, where=where, first_row=first_row)

    def _check_missing(self, found: Parsed, where: str) -> None:
        counts = {name: int(is_missing(found[name]).sum()) for name in self.required}
        check_missing(counts, where, is_new=True)

    # What is put in for missing values.

    def with_means(self, means: NDArray[np.float64], where: str = "the table") -> Schema:
        """Learn what is put in: the mean of numbers, dates and times, the most frequent of booleans and levels.

        :param means: [D], of the columns of X in the training rows, without those that are NaN.
        :raises ValueError: naming a column without any value in the training rows.
        """
        fills: list[float] = []
        for feature, block in zip(self.columns, self._blocks(means), strict=True):
            values: np.ndarray = block[: len(feature.value_names)]
            if np.isnan(values).any():
                raise ValueError(
                    f"column {feature.name!r} of {where} has no value in the training rows, so nothing can be put in "
                    f"where it is missing; leave it out with --ignore={feature.name}."
                )
            # Of levels, bins and booleans the most frequent; the column that says where values are missing gets 0.
            if feature.column.kind == "category" or feature.bins is not None:
                values = np.arange(len(values)) == values.argmax()
            elif feature.column.kind == "boolean":
                values = values > 0.5
            fills += [*map(float, values), *[0.0] * (len(block) - len(values))]
        return replace(self, fills=tuple(fills))

    def learned(self, X: NDArray[np.float64], where: str = "the table") -> Schema:
        """:meth:`with_means` of the training rows `X` [n, D], with NaN where values are missing."""
        means = np.asarray(X.mean(axis=0))
        for d in np.flatnonzero(np.isnan(means)):
            without_nan = X[~np.isnan(X[:, d]), d]
            means[d] = without_nan.mean() if len(without_nan) else np.nan
        return self.with_means(means, where)

    def filled(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """X with `fills` in place of NaN; X itself if there are none, or nothing is learned yet."""
        if self.fills is None or not X.size or not np.isnan(X.min()):
            return X
        return np.where(np.isnan(X), np.array(self.fills), X)

    def _blocks(self, row: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
        """The part of a row of X that each column has become."""
        start = 0
        for feature in self.columns:
            yield row[start : start + len(feature.names)]
            start += len(feature.names)

    # For a user, and for the run.

    def table(self) -> list[list[str]]:
        """Rows of text below a header: each column, what it is read as, details, and what it becomes in X or Y.

        From four on, neighbours that are read alike are one row: "x0 ... x783 (784 columns)".
        """
        rows = [["column", "read as", "details", "becomes"]]
        for _, group in itertools.groupby(self.columns, lambda feature: (feature.column.kind, _details(feature))):
            rows += _rows(list(group))
        becomes = f"target, {self.task}{f': {_shown(self.class_names)}' if self.class_names else ''}"
        return rows + [[column.name, column.kind, column.note, becomes] for column in self.targets]

    def to_json(self) -> dict[str, object]:
        """A dictionary for `gpflow_deep_base.files.write_json`."""
        return {
            "version": _VERSION,
            "columns": [feature.to_json() for feature in self.columns],
            "targets": list(self.target_names),
            "target_columns": [column.to_json() for column in self.targets],
            "task": self.task,
            "class_names": list(self.class_names),
            "fills": None if self.fills is None else list(self.fills),
            "na_values": list(self.na_values),
            "missing": self.missing,
            "unknown": self.unknown,
            **({"names": list(self.names)} if self.names else {}),
            **({"encoding": self.encoding} if self.encoding else {}),
            **({"sheet": self.sheet} if self.sheet else {}),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> Schema:
        """The inverse of :meth:`to_json`.

        :raises ValueError: if entries are missing or of another kind.
        """
        try:
            schema = _from_json(stored)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"the stored table schema is damaged ({error}); take an undamaged copy.") from error
        # One fill for each input.
        if schema.fills is not None and len(schema.fills) != len(schema.feature_names):
            raise ValueError(
                f"the stored table schema is damaged ({len(schema.fills)} fills for {len(schema.feature_names)} "
                "inputs); take an undamaged copy."
            )
        return schema


def _from_json(stored: Mapping[str, Any]) -> Schema:
    if stored["version"] != _VERSION:
        raise ValueError(f"its version is {stored['version']!r}, not {_VERSION}")
    # What is put in must be numbers.
    fills = stored["fills"]
    if fills is not None and not np.isfinite(fills).all():
        raise ValueError("a fill is not finite")
    # Every entry must be of its kind; the last three may be absent.
    return Schema(
        tuple(map(Feature.from_json, stored["columns"])),
        tuple(map(Column.from_json, stored["target_columns"])),
        _one_of(Task, stored["task"]),
        tuple(map(str, stored["class_names"])),
        None if fills is None else tuple(map(float, fills)),
        tuple(map(str, stored["na_values"])),
        _one_of(Missing, stored["missing"]),
        _one_of(Unknown, stored["unknown"]),
        tuple(map(str, stored.get("names", ()))),
        str(stored.get("encoding", "")),
        str(stored.get("sheet", "")),
    )


def _one_of(literal: object, value: object) -> Any:
    if value not in get_args(literal):
        raise ValueError(f"{value!r} is none of {', '.join(get_args(literal))}")
    return value


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
    # What was found out, then what it does not say itself.
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

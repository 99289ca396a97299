"""Frames as inputs of estimators: columns of numbers are taken as they are, others are read as tables are."""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

import numpy as np

__all__ = ["READER", "as_numbers"]

#: A frame of pandas or polars, or a column of one: what is used of them here they have in common, or is asked for.
Frame: TypeAlias = Any

READER = "gpflow_deep_runs.data.values.encoder"
"""The module of `TableEncoder`, which needs pandas and pyarrow: imported where a frame has to be read, only there."""

_NUMERIC = "biuf"
_SHOWN = 5


def as_numbers(X: Any, estimator: Any, *, reset: bool, may_miss: bool = False) -> Any:
    """The rows of a frame as numbers; other inputs, and frames of numbers without gaps, as they are.

    Levels become zeros and ones, dates the parts that vary; a value that is missing becomes what the training rows say,
    beside a column that says where, or stays NaN where the estimator takes that. The `TableEncoder` that does so, and
    tells what each column was read as, is kept as the estimator's `table_encoder_`.

    :param X: a frame of pandas or polars, a table of Arrow, or anything else.
    :param estimator: that is fitted, or was.
    :param reset: whether it is fitted anew; else the columns are read as they were then.
    :param may_miss: whether the estimator takes missing values.
    :raises ValueError: naming the column: it may be read in two ways, or cannot be read; or, of an estimator that was
        fitted to numbers, it is none.
    """
    if reset:
        vars(estimator).pop("table_encoder_", None)
    # A masked number is one that is missing.
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.filled(X.astype(np.float64), np.nan)
    # By its class, as columns of a frame of pandas are attributes, too. A table of Arrow; what is no frame stays.
    kind = type(X)
    if hasattr(kind, "column_names") and hasattr(kind, "to_pandas"):
        X = X.to_pandas()
        kind = type(X)
    if hasattr(kind, "collect"):
        raise ValueError(f"X must be a frame of rows, got a {kind.__name__} of polars; call its collect().")
    if not hasattr(kind, "columns") or not hasattr(kind, "dtypes"):
        return X
    # The encoder of the fit, or a new one if columns are not all plain numbers.
    encoder = getattr(estimator, "table_encoder_", None)
    if encoder is None:
        if not (odd := _odd_columns(X, may_miss)):
            return X
        # Columns that a model of numbers has not learned to read are named.
        if not reset:
            more = f" and {len(odd) - _SHOWN} more" if len(odd) > _SHOWN else ""
            raise ValueError(
                f"X must have columns of numbers, as in fit, but {', '.join(odd[:_SHOWN])}{more} are none; fit "
                f"{type(estimator).__name__} to rows that have such values, or convert the columns."
            )
        encoder = _fitted(X, estimator, may_miss)
        estimator.table_encoder_ = encoder
    return encoder.transform(X)


def _fitted(X: Frame, estimator: object, may_miss: bool) -> Any:
    encoder = importlib.import_module(READER).TableEncoder(missing="keep" if may_miss else "impute")
    try:
        return encoder.fit(X)
    except ValueError as error:
        raise ValueError(
            f"{error} (In Python: `from {READER} import TableEncoder`, and `make_pipeline(TableEncoder(...), "
            f"{type(estimator).__name__}(...))`, where flags are arguments, such as ignore=['name'].)"
        ) from error


def _odd_columns(X: Frame, may_miss: bool) -> list[str]:
    """Columns that an array of them would take for numbers without a word, or not at all; each with what it is.

    Days would be nanoseconds, codes such as "01" numbers, and categories the numbers that they are named by.
    """
    odd = []
    for number, (name, dtype) in enumerate(zip(X.columns, X.dtypes, strict=True)):
        # By place, as names may occur twice.
        column = X.iloc[:, number] if hasattr(X, "iloc") else X.to_series(number)
        if not _is_numeric(dtype, column):
            odd.append(f"{name!r} ({str(dtype).lower()})")
        elif not may_miss and _has_missing(column):
            odd.append(f"{name!r} (missing values)")
    return odd


def _is_numeric(dtype: object, column: Frame) -> bool:
    if hasattr(dtype, "is_numeric"):  # of polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    if getattr(dtype, "kind", "O") == "O":  # perhaps numbers as objects
        dtype = column.infer_objects().dtype
    return getattr(dtype, "kind", "O") in _NUMERIC


def _has_missing(column: Frame) -> bool:
    if hasattr(column, "isna"):
        return bool(column.isna().any())
    return bool(column.null_count() or (column.dtype.is_float() and column.is_nan().any()))

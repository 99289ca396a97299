"""Frames as inputs of estimators: columns of numbers are taken as they are, others are refused with what reads them."""

from __future__ import annotations

from typing import Any

__all__ = ["check_columns"]

_NUMERIC = "biuf"
_SHOWN = 5


def check_columns(X: Any, estimator: Any, *, may_miss: bool = False) -> None:
    """Refuse a frame whose columns are no numbers, where an array of them would be taken for some without a word.

    Days would be nanoseconds, codes such as "01" numbers, and categories the numbers that they are named by.

    :param X: a frame of pandas or polars; other inputs are left to others.
    :param estimator: that is to be fitted, for the message.
    :param may_miss: whether the estimator takes missing values.
    :raises ValueError: naming the columns that are texts, categories or dates, or have missing values.
    """
    if not hasattr(X, "columns") or not hasattr(X, "dtypes"):
        return
    odd = []
    for number, (name, dtype) in enumerate(zip(X.columns, X.dtypes, strict=True)):
        column = X.iloc[:, number] if hasattr(X, "iloc") else X.to_series(number)
        if not _is_numeric(dtype, column):
            odd.append(f"{name!r} ({str(dtype).lower()})")
        elif not may_miss and _has_missing(column):
            odd.append(f"{name!r} (missing values)")
    if not odd:
        return
    name = type(estimator).__name__
    more = f" and {len(odd) - _SHOWN} more" if len(odd) > _SHOWN else ""
    raise ValueError(
        f"X must have columns of numbers, but {', '.join(odd[:_SHOWN])}{more} are none; `from "
        "gpflow_deep_runs.data.encoder import TableEncoder` and `make_pipeline(TableEncoder(), "
        f"{name}(...)).fit(X, y)` read levels, dates, texts and missing values."
    )


def _is_numeric(dtype: Any, column: Any) -> bool:
    if hasattr(dtype, "is_numeric"):  # of polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    if getattr(dtype, "kind", "O") == "O":  # perhaps numbers as objects
        dtype = column.infer_objects().dtype
    return getattr(dtype, "kind", "O") in _NUMERIC


def _has_missing(column: Any) -> bool:
    if hasattr(column, "isna"):
        return bool(column.isna().any())
    return bool(column.null_count() or (column.dtype.is_float() and column.is_nan().any()))

"""Frames of people as numbers, for pipelines of scikit-learn.

    model = make_pipeline(TableEncoder(), DeepGPRegressor()).fit(frame, y)  # of pandas, polars or Arrow
    print(aligned(model[0].columns_, is_text=True))                         # what each column was read as
    model.predict(new_frame)

Cells are read as the scripts read them: numbers as text, dates, times, booleans, levels, missing values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from absl import logging
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gpflow_deep_runs.data.files.sources import read_source
from gpflow_deep_runs.data.table.numeric import check_finite
from gpflow_deep_runs.data.table.spec import Missing, TableSpec, Unknown
from gpflow_deep_runs.data.tables import apply_schema, encode_table

__all__ = ["TableEncoder"]


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Columns of numbers, levels, booleans, dates and times as a matrix of numbers; see docs/data.md.

    Levels become zeros and ones, dates the parts that vary, and a value that is missing what the training rows say,
    beside a column that says where. Rows are neither dropped nor reordered.

        >>> import pandas as pd
        >>> from gpflow_deep_runs.data.values.encoder import TableEncoder
        >>> homes = pd.DataFrame({"area": ["40 m2", "82 m2", "60 m2"], "garage": ["no", "two", "no"]})
        >>> encoder = TableEncoder(categorical=("garage",)).fit(homes)
        >>> encoder.transform(homes).tolist()
        [[40.0, 1.0, 0.0], [82.0, 0.0, 1.0], [60.0, 1.0, 0.0]]

    :param categorical: columns whose values are levels, also if they are numbers.
    :param numeric: columns whose values are numbers, also if they look like row numbers or codes.
    :param dates: columns that are dates or times, as NAME or NAME:FORMAT.
    :param ignore: columns to leave out.
    :param na_values: texts that stand for a missing value, besides the usual ones.
    :param keep_value: values that are what they look like, such as -999.
    :param missing: "impute"; "keep", which leaves NaN, in all levels of a value that is missing; or "error".
    :param unknown: what to do with levels that the training rows do not have: "level", none of the known ones, or
        "error".
    :param rare: join the levels of a column that fewer rows than this have; None: none.
    :ivar schema_: what was found out of the columns; `schema_.to_json()` is safe to keep and to load.
    :ivar columns_: the same as rows of text below a header.
    :ivar feature_names_in_: names of the columns.
    """

    def __init__(
        self,
        *,
        categorical: Sequence[str] = (),
        numeric: Sequence[str] = (),
        dates: Sequence[str] = (),
        ignore: Sequence[str] = (),
        na_values: Sequence[str] = (),
        keep_value: Sequence[str] = (),
        missing: Missing | Literal["keep"] = "impute",
        unknown: Unknown = "level",
        rare: int | None = None,
    ) -> None:
        self.categorical = categorical
        self.numeric = numeric
        self.dates = dates
        self.ignore = ignore
        self.na_values = na_values
        self.keep_value = keep_value
        self.missing = missing
        self.unknown = unknown
        self.rare = rare

    def fit(self, X: object, y: object = None) -> TableEncoder:
        """Find out what the columns are.

        :param X: a frame, a table of Arrow, or the path of a file; an array has the columns "0", "1", ...
        :param y: not used.
        :raises ValueError: naming the column, and the argument that decides, where a column may be read in two ways.
        """
        spec = TableSpec(
            categorical=tuple(self.categorical),
            numeric=tuple(self.numeric),
            dates=tuple(self.dates),
            ignore=tuple(self.ignore),
            na_values=tuple(self.na_values),
            keep_value=tuple(self.keep_value),
            missing="impute" if self.missing == "keep" else self.missing,
            unknown=self.unknown,
            rare=self.rare,
        )
        # Columns are read as those of a file, but no row may be left out.
        table = read_source(_framed(X), spec=spec)
        encoded = encode_table(table, (), spec)
        if len(encoded.kept) < len(table.columns):
            raise ValueError(f"{table.where} must have rows to use alone, but {'; '.join(encoded.notes)}; drop them.")
        check_finite(encoded.X, encoded.schema.feature_names, f"X of {table.where}", may_miss=True)
        if encoded.notes:
            logging.warning("%s: %s.", table.where, "; ".join(encoded.notes))
        # Missing values stay NaN, or become what these rows say.
        if self.missing == "keep":
            plain = tuple(replace(feature, num_missing=0) for feature in encoded.schema.columns)
            self.schema_ = replace(encoded.schema, columns=plain)
        else:
            self.schema_ = encoded.schema.learned(encoded.X, table.where)
        self.columns_ = self.schema_.table()
        self.feature_names_in_ = np.array(table.columns.column_names, dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def transform(self, X: object) -> NDArray[np.float64]:
        """Rows as numbers, [N, D]; columns may come in any order.

        :raises ValueError: naming column, row and value of what cannot be read as in `fit`.
        """
        check_is_fitted(self)
        return apply_schema(self.schema_, _framed(X), may_miss=self.missing == "keep")[0]

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Names of the D columns: "colour=red" for a level."""
        check_is_fitted(self)
        return np.array(self.schema_.feature_names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Gaps and texts are read, not refused.
        tags.input_tags.allow_nan = True
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags


def _framed(X: object) -> object:
    """Arrays and lists as a frame, other sources as they are."""
    if isinstance(X, np.ndarray | list | tuple):
        frame = pd.DataFrame(X if isinstance(X, np.ma.MaskedArray) else np.asarray(X))
        return frame.set_axis([str(name) for name in frame.columns], axis=1)
    return X

"""Columns of text: two words that are yes and no, categories of a few levels, ids, and text of too many levels."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpflow_deep_runs.data import notes
from gpflow_deep_runs.data.cells import Contents, is_missing
from gpflow_deep_runs.data.columns import Column
from gpflow_deep_runs.data.libraries import pa, pc

__all__ = ["ID_NOTE", "MAX_LEVELS", "boolean_column", "is_id", "is_id_name", "text_column"]

MAX_LEVELS = 50
"""Most levels that a category may have."""

ID_NOTE = "an id: every value differs; --numeric or --categorical reads it"
"""Of a column that is left out because it is an id."""

_ALL_DIFFERENT = 20
_WORDS = (
    *(("true", "false"), ("t", "f"), ("yes", "no"), ("y", "n"), ("on", "off"), ("ja", "nein"), ("oui", "non")),
    *(("si", "no"), ("sí", "no"), ("sì", "no"), ("sim", "não"), ("tak", "nie"), ("да", "нет")),
)
_ID = re.compile(
    r"(?i:(?:.*[\s_.-])?(?:id|uuid|guid)|index|idx|rows?|row[\s_.]?(?:id|num|no|number|index|names?)|unnamed: [\d.]+"
    r"|level_0|#|n[or]\.?|(?:s|sl|sr|serial|case)[\s_.]*(?:no|nr|number)\.?|obs|observation)|.*[a-z0-9]I[dD]"
)


def is_id_name(name: str) -> bool:
    """Whether the name of a column says that it is an id."""
    return _ID.fullmatch(name) is not None


def is_id(name: str, values: pa.ChunkedArray, found: NDArray[np.float64]) -> bool:
    """Whether a column of numbers is an id by its name and by its values: whole and all different."""
    if not is_id_name(name) or len(values) < 2 or values.null_count:
        return False
    return bool((found == np.round(found)).all()) and pc.count_distinct(values).as_py() == len(values)


def boolean_column(contents: Contents, na_values: Sequence[str]) -> Column | None:
    """A column of two words that are yes and no, or of true or false alone."""
    texts = contents.cells.texts
    for true, false in _WORDS:
        is_program = true == "true"
        is_value = contents.is_value if is_program else contents.counts > 0
        if not is_program:
            is_value = is_value & ~is_missing(texts, na_values, markers=False)
        lower = pc.utf8_lower(texts.filter(pa.array(is_value)))
        found = set(pc.unique(lower).slice(0, 3).to_pylist())
        if found == {true, false} or (is_program and found and found <= {true, false}):
            spellings = {word: _spellings(contents, is_value, word) for word in (true, false)}
            note = "; ".join(notes.of_markers(contents)) if is_program else ""
            return Column(
                contents.name,
                "boolean",
                true=spellings[true] or ("True",),
                false=spellings[false] or ("False",),
                note=note,
            )
    return None


def _spellings(contents: Contents, is_value: NDArray[np.bool_], word: str) -> tuple[str, ...]:
    """How a word is written, the most frequent spelling first."""
    found: dict[str, int] = {}
    for number in np.flatnonzero(is_value):
        text = contents.cells.texts[int(number)].as_py()
        if text.casefold() == word:
            found[text] = found.get(text, 0) + int(contents.counts[number])
    return tuple(sorted(found, key=lambda text: -found[text]))


def text_column(contents: Contents, na_values: Sequence[str], note: str) -> Column:
    """A column of text: an id, which is ignored; a category; or text, with too many levels to be one."""
    texts = contents.cells.texts
    is_value = ~is_missing(texts, na_values, markers=False) & (contents.counts > 0)
    num_levels = len(pc.unique(texts.filter(pa.array(is_value))))
    num_values = int(contents.counts[is_value].sum())
    if num_levels == num_values and num_values > 1 and is_id_name(contents.name):
        return Column(contents.name, "ignored", note=ID_NOTE)
    if num_levels > MAX_LEVELS or (num_levels == num_values >= _ALL_DIFFERENT):
        return Column(contents.name, "text", note="; ".join(filter(None, [f"{num_levels} different texts", note])))
    levels = notes.of_levels(texts.filter(pa.array(is_value)), ())
    return Column(contents.name, "category", note="; ".join(filter(None, [note, levels])))

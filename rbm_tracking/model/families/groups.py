"""Groups of columns that are one category: said by the user, known from a table, or found in a matrix of bits.

blocks(21, X.shape[1])             # of 21 columns each
find_groups(X)                     # contiguous columns of which at most one is 1, as softmax units
parse_groups("0-2,3-5,8+10+11")    # as the user writes them
softmax(X, groups)                 # which of them have a 1 in every row, as units
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from rbm_tracking.model.checks import check_binary
from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.model.visible import Bernoulli, Visible

__all__ = ["blocks", "find_groups", "fitting", "group_text", "parse_groups", "softmax"]

MIN_TOGETHER = 10.0
"""Pairs of ones that a group of independent columns would have in the rows: e^-10 is the probability of seeing none."""

Groups = tuple[tuple[int, ...], ...]


def find_groups(rows: ArrayLike, *, min_together: float = MIN_TOGETHER) -> Groups:
    """Contiguous columns that are one category, as far as rows of bits [N, n_v] tell; () if there are none.

    From the left, columns are taken as long as no row has two ones among them. They are a group as soon as every row
    has a one; else, where the next column would not fit, if independent columns with the same means would have at
    least `min_together` pairs of ones in these rows: columns that are merely rare are left alone. Where a column has no
    ones, it could belong to either neighbour: groups are of one size, if that is as right for every row.

    :raises ValueError: if the rows are not binary.
    """
    bits = np.asfortranarray(check_binary(rows).astype(bool))
    groups = []
    start = 0
    while start < bits.shape[1]:
        # Columns are taken as long as no row has two ones among them.
        has_one = bits[:, start].copy()
        stop = start + 1
        while stop < bits.shape[1] and not has_one.all() and not (has_one & bits[:, stop]).any():
            has_one |= bits[:, stop]
            stop += 1
        # A group: every row has a one, or independent columns would have had pairs of ones.
        if stop - start > 1 and (has_one.all() or _pairs(bits[:, start:stop].mean(0)) * len(bits) >= min_together):
            groups.append(tuple(range(start, stop)))
            start = stop
        else:
            start += 1
    return _of_one_size(bits, tuple(groups))


def _of_one_size(bits: np.ndarray, groups: Groups) -> Groups:
    """As many groups of one size, if every row has a single one in each of them; else the groups."""
    # Columns without a one may stand at either end of a group.
    n_v = bits.shape[1]
    if not groups or n_v % len(groups) or n_v < 2 * len(groups):
        return groups
    even = blocks(n_v // len(groups), n_v)
    return even if (bits.reshape(len(bits), len(groups), -1).sum(axis=2) == 1).all() else groups


def blocks(size: int, n_v: int) -> Groups:
    """Categories of `size` levels each, one after the other: the sites of an alignment.

    :param size: levels of each, at least 2.
    :param n_v: number of columns.
    :raises ValueError: if it is not a multiple of `size`.
    """
    if size < 2 or n_v % size:
        raise ValueError(
            f"groups must be the number of levels of each category, at least 2 and a divisor of the {n_v} columns, got "
            f"{size}; or name the columns of each."
        )
    return tuple(tuple(range(start, start + size)) for start in range(0, n_v, size))


def softmax(rows: ArrayLike, groups: Sequence[Sequence[int]], *, check: bool = True) -> Visible:
    """Units of these groups; those that have a 1 in every row have one in all rows to come. Without groups: bits.

    :param rows: [N, n_v].
    :param check: whether to check that at most one column of each group is 1.
    :raises ValueError: if groups do not fit each other or the rows.
    """
    bits = check_binary(rows)
    columns = tuple(tuple(int(column) for column in group) for group in groups)
    if not columns:
        return Bernoulli()
    # Whether the columns are there; then which groups have a one in every row.
    Softmax(bits.shape[1], columns)
    units = Softmax(bits.shape[1], columns, tuple(bool(bits[:, list(g)].any(axis=1).all()) for g in columns))
    if check:
        units.check(bits, name="the rows")
    return units


def fitting(groups: Sequence[Sequence[int]], rows: ArrayLike) -> Groups:
    """Those groups of which at most one column is 1 in each of further rows [N, n_v]."""
    bits = np.asarray(rows).astype(bool)
    return tuple(tuple(group) for group in groups if (bits[:, list(group)].sum(axis=1) <= 1).all())


def parse_groups(text: str) -> Groups:
    """Groups as a user writes them: first-last, or columns joined by +, with commas between groups; counted from 0.

    :raises ValueError: naming the part that is something else.
    """
    groups = []
    # A part is a block of columns, first-last, or a list of them, joined by +
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = part.partition("-")
        listed = part.split("+")
        if dash and first.isdecimal() and last.isdecimal() and int(first) < int(last) < 10**7:
            groups.append(tuple(range(int(first), int(last) + 1)))
        elif not dash and len(listed) > 1 and all(column.isdecimal() for column in listed):
            groups.append(tuple(map(int, listed)))
        else:
            raise ValueError(f"groups must be like 0-2,3-5 or 0+4+7, columns counted from 0, got {part!r}.")
    return tuple(groups)


def group_text(groups: Sequence[Sequence[int]], limit: int = 8) -> str:
    """The first groups in the form of :func:`parse_groups`, and how many more there are."""
    parts = []
    for group in groups:
        is_block = list(group) == list(range(group[0], group[-1] + 1))
        parts.append(f"{group[0]}-{group[-1]}" if is_block else "+".join(map(str, group)))
    return ",".join(parts[:limit]) + (f" and {len(parts) - limit} more" if len(parts) > limit else "")


def _pairs(mean: np.ndarray) -> float:
    """Expected pairs of ones in a row of independent columns."""
    return float(mean.sum() ** 2 - (mean**2).sum()) / 2

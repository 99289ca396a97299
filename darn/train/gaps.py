"""Rows of bits with gaps, filled so that densities can learn from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from darn.more.chain import Chain
from darn.more.ordered import Category, levels_in_order
from darn.train.chain_fitting import fit_chain, row_weights

__all__ = ["filled"]

_ROUNDS = 3
_STRENGTH = 0.3  # of the chain's penalty, of all rows together


def filled(
    x: NDArray[np.uint8],
    is_missing: NDArray[np.bool_],
    *,
    groups: Sequence[Sequence[int]] = (),
    weights: ArrayLike | None = None,
    seed: int = 0,
) -> NDArray[np.uint8]:
    """The rows with their missing bits drawn given the known ones: at first from the frequencies of the known bits,
    then three times from an L1 chain that was fitted to the rows as they were filled last (stochastic EM; Celeux and
    Diebolt, 1985).

    :param x: [N, n]; what stands where bits are missing does not matter.
    :param is_missing: booleans [N, n].
    :param groups: columns of each category.
    :param weights: of the rows, [N]; 1 if not given.
    :param seed: of the draws.
    :raises ValueError: if the known bits of a row have two levels of a category.
    """
    known = ~is_missing
    rows = np.where(is_missing, 0, x).astype(np.uint8)
    counted = row_weights(weights, len(rows))
    categories = tuple(_category(group, rows, known) for group in groups)
    # Columns that do not depend on one another, but for levels of a category.
    order = np.arange(rows.shape[1], dtype=np.int32)
    is_open = known.astype(np.float64) * counted[:, None]
    for j, level in levels_in_order(categories, order).items():
        is_open[:, j] *= ~rows[:, level.earlier].any(axis=1) & known[:, level.earlier].all(axis=1)
    ones = (rows * is_open).sum(axis=0)
    bias = np.log((ones + 0.5) / (is_open.sum(axis=0) - ones + 0.5))
    chain = Chain(order, bias, scipy.sparse.csc_matrix((len(order), len(order))), categories)
    for number in range(_ROUNDS):
        rows = chain.fill(rows, is_missing, seed=seed + number)
        chain = fit_chain(rows, _STRENGTH, categories=categories, weights=weights)
    return chain.fill(rows, is_missing, seed=seed + _ROUNDS)


def _category(group: Sequence[int], rows: NDArray[np.uint8], known: NDArray[np.bool_]) -> Category:
    """The columns as one category, which is never missing if all rows whose levels are all known have one."""
    columns = [int(column) for column in group]
    counts = rows[:, columns].sum(axis=1)
    if counts.max(initial=0) > 1:
        row = int(counts.argmax())
        raise ValueError(
            f"the columns {tuple(columns)} must be one category, got {int(counts[row])} ones in row {row}."
        )
    is_whole = known[:, columns].all(axis=1)
    return Category(tuple(columns), bool(is_whole.any() and counts[is_whole].min() == 1))

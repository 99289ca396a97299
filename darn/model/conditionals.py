"""Conditionals by their names."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from darn.model.autoregressive import Conditional, FactorialConditional, LinearConditional
from darn.model.categories import Category
from darn.more.made import MADEConditional
from darn.more.nade import EoNADEConditional, NADEConditional

__all__ = ["CONDITIONALS", "EONADE_ORDERS", "make_conditional"]

CONDITIONALS = ("linear", "nade", "eonade", "made")

EONADE_ORDERS = 16
"""Over which an EoNADE averages if their number is not given."""


def make_conditional(
    kind: str,
    n: int,
    *,
    units: int,
    seed: tf.Tensor,
    orders: int | None = None,
    categories: Sequence[Category] = (),
    dtype: tf.DType = tf.float32,
    name: str,
) -> Conditional:
    """A conditional by its name: "factorial" or one of :data:`CONDITIONALS`.

    :param units: deterministic units of NADE, EoNADE and MADE; the others ignore it.
    :param seed: int32 [2], of the initial weights.
    :param orders: of the bits, over which EoNADE and MADE average; 16 and 1 if not given. The others ignore it.
    :param categories: bits that are one variable; linear conditionals alone take them.
    :raises ValueError: if the kind is not known.
    """
    if kind == "factorial" or n == 1:
        return FactorialConditional(n, dtype=dtype, name=name)
    if kind == "linear":
        return LinearConditional(n, categories=categories, dtype=dtype, name=name)
    if kind == "nade":
        return NADEConditional(n, units, seed=seed, dtype=dtype, name=name)
    if kind == "eonade":
        num_orders = orders or EONADE_ORDERS
        return EoNADEConditional(n, units, seed=seed, num_orders=num_orders, dtype=dtype, name=name)
    if kind == "made":
        return MADEConditional(n, (units,), seed=seed, num_orders=orders or 1, dtype=dtype, name=name)
    raise ValueError(f"conditional must be one of {', '.join(CONDITIONALS)}, got {kind!r}.")

"""What reading a `.bcz` file takes: memory for weights and inputs, and time for layers, reckoned as bytes.

A file says how large its network is in a few bytes, so a budget in proportion to its length is asked first, see
`gpflow_deep_base.storage.limits`. Time that layers take counts as memory, as there is one limit for a caller to raise.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from gpflow_deep_base.storage.limits import Budget, budget_of

__all__ = ["budget_for", "take_draws", "take_input", "take_settings", "take_time", "take_weights"]

_FREE_BYTES = 100 * 10**6
_PER_BYTE = 256  # weights of 3/4 of a bit each are never refused
_PER_WEIGHT = 24  # decoded as int64, then float32, then in a variable
_PER_DRAW = 16  # more, of a random code: its order and its place
_PER_NUMBER = 16  # of an input that something is broadcast to
_PER_CALL = 2**15  # of a layer, and for each weight of it; a millisecond
_SLOW = ("LSTM", "GRU", "SimpleRNN", "MultiHeadAttention", "GroupedQueryAttention", "Attention", "AdditiveAttention")
_SLOWER = 8
_PER_ENTRY = {"ngrams": 2000, "num_oov_indices": 100, "indices_or_sections": _PER_CALL, "num": _PER_CALL}
"""Of each entry of the lists of words or tensors that layers and operations make of these settings."""
_Shapes = Sequence[Sequence[int]]


def budget_for(length: int, max_bytes: int | None = None) -> Budget:
    """The budget of a file: 100 MB and 256 times its length, unless the caller says otherwise.

    :param length: of the file, bytes.
    :param max_bytes: the caller's limit, or None.
    :raises ValueError: if the limit is not positive.
    """
    return budget_of(length, _FREE_BYTES + _PER_BYTE * length if max_bytes is None else max_bytes)


def take_input(budget: Budget, shape: Iterable[int | None]) -> None:
    """Room for one example of an input, or of what a layer broadcasts its settings to.

    :param shape: without the axis of examples; sizes that are left open count as 1.
    :raises ValueError: if there is too little.
    """
    budget.take(_PER_NUMBER * math.prod(int(size or 1) for size in shape), "an input of this size")


def take_settings(budget: Budget, settings: Mapping[str, object]) -> None:
    """Room for what a layer makes of its settings before it is called.

    :raises ValueError: if there is too little.
    """
    for name, entry_bytes in _PER_ENTRY.items():
        # The list is made when the layer is, whatever its inputs are.
        if isinstance(count := settings.get(name), int):
            budget.take(entry_bytes * max(0, count), f"{name} of this size")


def take_time(budget: Budget, kind: str, count: int) -> None:
    """Time for the calls of a layer, and for its weights.

    :param kind: of the layer.
    :param count: calls and variables together.
    :raises ValueError: if there is too little.
    """
    budget.take(_PER_CALL * count * (_SLOWER if kind in _SLOW else 1), "a network of so many layers")


def take_weights(budget: Budget, shapes: _Shapes) -> None:
    """Room for the weights of a layer.

    :raises ValueError: if there is too little.
    """
    budget.take(_PER_WEIGHT * sum(math.prod(map(int, shape)) for shape in shapes), "a network of so many weights")


def take_draws(budget: Budget, shapes: _Shapes) -> None:
    """More room for weights that are random draws.

    :raises ValueError: if there is too little.
    """
    budget.take(_PER_DRAW * sum(math.prod(map(int, shape)) for shape in shapes), "a network of so many random draws")

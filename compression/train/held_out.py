"""Training data as Keras takes them, and the loss of a network on those that are set aside."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from ..graph.graph import Nested, rows_at_once

__all__ = [
    "TrainingData",
    "check_finite",
    "endless",
    "examples_of",
    "loss_of",
    "losses_of",
    "outputs_of",
]

LossFunction: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Of targets and outputs; also an object of Keras."""

_ROWS = 1024
_CHUNKS = 50


class TrainingData(NamedTuple):
    """Training data as `keras.Model.fit` takes them, their number, validation data as arrays, nested as inputs and
    targets of the model are, and the steps of an epoch."""

    train: dict[str, object]
    num_train: int
    valid: tuple[Nested, Nested]
    steps: int

    @classmethod
    def of_arrays(cls, X: object, Y: object, valid: tuple[Nested, Nested], batch_size: int) -> TrainingData:
        """The rest of an epoch is a batch of its own."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        # Words have to be tensors for Keras.
        x = _nested(lambda array: tf.constant(array) if array.dtype.kind in "OSU" else array, X)
        train = {"x": x, "y": Y, "batch_size": batch_size}
        return cls(train, _count(X), valid, max(1, math.ceil(_count(X) / batch_size)))


def examples_of(
    x: object, y: object, validation_data: object, validation_split: float, batch_size: int
) -> TrainingData:
    """Data of `compression.fit`, checked.

    :raises ValueError: if numbers differ, there are no validation data, or a Dataset does not end.
    """
    if isinstance(x, tf.data.Dataset):
        if validation_data is None:
            raise ValueError("validation_data must be given with a Dataset; a part of arrays would be set aside.")
        counts = _counts(x)
        return TrainingData({"x": x, "shuffle": False}, sum(counts), _arrays(validation_data), max(1, len(counts)))
    X = _checked_arrays("x", x)
    Y = _checked_arrays("y", y)
    if y is None or not _same_count(X, Y) or _count(X) < 2:
        raise ValueError(f"x and y must have equally many examples, at least 2, got {_shapes(X)} and {_shapes(Y)}.")
    # Data that are given, or the last examples, which are set aside.
    if validation_data is not None:
        return TrainingData.of_arrays(X, Y, _arrays(validation_data), batch_size)
    if not 0 < validation_split < 1:
        raise ValueError(f"validation_split must be between 0 and 1, got {validation_split}; or give validation_data.")
    num_first = max(1, min(_count(X) - 1, round(_count(X) * (1 - validation_split))))
    X_first, Y_first = (_nested(lambda array: array[:num_first], part) for part in (X, Y))
    X_last, Y_last = (_nested(lambda array: array[num_first:], part) for part in (X, Y))
    return TrainingData.of_arrays(X_first, Y_first, (X_last, Y_last), batch_size)


def _arrays(data: object) -> tuple[Nested, Nested]:
    if isinstance(data, tf.data.Dataset):
        _check_batches("validation_data", data)
        # All batches of a Dataset as one array of each input and target.
        batches = [_nested(np.asarray, (batch[0], batch[1])) for batch in data]
        if not batches:
            raise ValueError("validation_data must have examples, got an empty Dataset.")
        X, Y = _nested(lambda *parts: np.concatenate(parts), *batches)
    elif isinstance(data, tuple | list) and len(data) >= 2:
        X = data[0]
        Y = data[1]
    else:
        raise ValueError(f"validation_data must be inputs and targets, or a Dataset, got a {type(data).__name__}.")
    X = _checked_arrays("inputs of validation_data", X)
    Y = _checked_arrays("targets of validation_data", Y)
    if not _same_count(X, Y) or not _count(X):
        raise ValueError(
            f"validation_data must have equally many inputs and targets, got {_shapes(X)} and {_shapes(Y)}."
        )
    return X, Y


def _checked_arrays(name: str, data: object) -> Nested:
    """Arrays of numbers or words, nested as they were.

    :raises ValueError: if they are none, or if a number is NaN or infinite.
    """
    if isinstance(data, keras.utils.PyDataset | Iterator):
        raise ValueError(
            f"{name} must be arrays or a tf.data.Dataset, got a {type(data).__name__}; put its batches together, or "
            "wrap it by tf.data.Dataset.from_generator."
        )
    arrays = _nested(np.asarray, data)
    for array in keras.tree.flatten(arrays):
        check_finite(name, array)
    return arrays


def check_finite(name: str, array: np.ndarray) -> None:
    """Refuse NaN and infinite numbers.

    :raises ValueError: with the number of examples that have some.
    """
    if "float" not in array.dtype.name:
        return
    # Count the examples in which a number is not.
    is_finite = np.isfinite(array)
    if not np.all(is_finite):
        rows = is_finite.reshape(len(array) if np.ndim(array) else 1, -1)
        num_bad = int(np.sum(~np.all(rows, axis=1)))
        raise ValueError(f"{name} must be finite, got NaN or infinite numbers in {num_bad} of {len(rows)} examples.")


def _check_batches(name: str, data: tf.data.Dataset) -> None:
    """Refuse a Dataset without end, or of something else than batches of inputs and targets: ValueError."""
    if int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError(f"{name} must be a Dataset that ends, such as one pass over the examples; leave out repeat().")
    spec = data.element_spec
    if not isinstance(spec, tuple) or len(spec) < 2 or any(len(part.shape) == 0 for part in keras.tree.flatten(spec)):
        raise ValueError(
            f"{name} must be a Dataset of batches of inputs and targets, as batch() makes them, got {spec}."
        )


def _counts(x: tf.data.Dataset) -> list[int]:
    """Examples in each batch, which are looked at in one pass.

    :raises ValueError: if there are none or no end of them, or a number is NaN or infinite.
    """
    _check_batches("x", x)
    counts = []
    for batch in x:
        for name, part in zip(("inputs in x", "targets in x"), batch, strict=False):
            for array in keras.tree.flatten(part):
                check_finite(name, np.asarray(array) if isinstance(array, tf.Tensor) else np.zeros(0))
        counts.append(_count(batch[0]))
    if not counts:
        raise ValueError("x must have examples, got an empty Dataset.")
    return counts


def _nested(function: Callable[..., object], *parts: object) -> Nested:
    """`map_structure`, in which a list of numbers is one array."""
    if not isinstance(parts[0], dict | tuple) and not _is_list_of_arrays(parts[0]):
        return function(*parts)
    return keras.tree.map_structure(function, *parts)


def _is_list_of_arrays(part: object) -> bool:
    return isinstance(part, list) and bool(part) and all(hasattr(element, "shape") for element in part)


def _count(part: object) -> int:
    return len(keras.tree.flatten(part)[0])


def _same_count(*parts: object) -> bool:
    arrays = keras.tree.flatten(parts)
    return all(np.ndim(array) > 0 for array in arrays) and len({len(array) for array in arrays}) == 1


def _shapes(part: object) -> str:
    return " and ".join(str(np.shape(array)) for array in keras.tree.flatten(part))


def endless(x: object, y: object, batch_size: int, seed: int) -> tuple[tf.data.Dataset, int, int]:
    """Batches of inputs and targets without end, the number of examples, and of the batches of one pass over them.

    :param x: arrays, in a new order in each pass; or a Dataset that ends, without `y`.
    :param seed: of the order.
    :raises ValueError: if numbers of examples differ, or a Dataset does not end.
    """
    if isinstance(x, tf.data.Dataset):
        counts = _counts(x)
        return x.map(lambda *batch: batch[:2]).repeat(), sum(counts), len(counts)
    X = _checked_arrays("x", x)
    Y = _checked_arrays("y", y)
    if y is None or not _same_count(X, Y) or not _count(X):
        raise ValueError(f"x and y must have equally many examples, at least 1, got {_shapes(X)} and {_shapes(Y)}.")
    count = _count(X)
    # tf.data takes a list for one tensor.
    slices = tuple(tuple(part) if isinstance(part, list) else part for part in (X, Y))
    rows = tf.data.Dataset.from_tensor_slices(slices).shuffle(count, seed=seed).repeat()
    return rows.batch(batch_size).prefetch(2), count, max(1, count // batch_size)


def outputs_of(model: keras.Model, X: ArrayLike) -> Nested:
    """Outputs of a network, nested as it gives them."""
    # On so many rows at once as there is memory for.
    rows = rows_at_once(model, _ROWS)
    parts = [
        model(_nested(lambda array, i=i: array[i : i + rows], X), training=False) for i in range(0, _count(X), rows)
    ]
    return keras.tree.map_structure(lambda *chunks: tf.concat(chunks, axis=0), *parts)


def loss_of(loss: object, valid: tuple[Nested, Nested]) -> Callable[[keras.Model], np.ndarray]:
    """A function of a network: its loss on parts of the validation data, whose spread is that of examples.

    :param loss: as for `keras.Model.compile`: one for all outputs, or one for each, the sum of which is taken.
    """
    X, Y = valid
    # Parts of equal size, the spread of whose means says how sure the loss is.
    parts = np.array_split(np.arange(_count(X)), min(_CHUNKS, _count(X)))
    targets = keras.tree.flatten(Y)

    def values(model: keras.Model) -> np.ndarray:
        outputs = outputs_of(model, X)
        losses = losses_of(loss, model, outputs)
        pairs = zip(losses, targets, keras.tree.flatten(outputs), strict=True)
        return np.sum([_by_part(output_loss, y, o, parts) for output_loss, y, o in pairs], axis=0)

    return values


def _by_part(
    loss: keras.losses.Loss | LossFunction, y: np.ndarray, outputs: tf.Tensor, parts: Sequence[np.ndarray]
) -> np.ndarray:
    """Means of a loss over parts of the examples."""
    if isinstance(loss, keras.losses.Loss):
        loss = copy.copy(loss)
        loss.reduction = None
    # Keras's losses tell that of each example; of others that of each part is asked for.
    of_examples = np.asarray(loss(y, outputs), np.float64)
    if of_examples.ndim and len(of_examples) == len(y):
        return np.array([np.mean(of_examples[part]) for part in parts])
    return np.array([float(tf.reduce_mean(loss(y[part], tf.gather(outputs, part)))) for part in parts])


def losses_of(loss: object, model: keras.Model, outputs: object) -> list[LossFunction]:
    """One loss for each output, in the order of `keras.tree.flatten`.

    :param loss: as for `keras.Model.compile`.
    :param outputs: of the model, nested as it gives them.
    :raises ValueError: if there are more or fewer than outputs.
    """
    # One loss for all outputs, or one for each, by name or in order.
    count = len(keras.tree.flatten(outputs))
    if isinstance(loss, dict):
        names = sorted(outputs) if isinstance(outputs, dict) else model.output_names
        if missing := [name for name in names if name not in loss]:
            raise ValueError(f"loss must have one for each output, got none for {', '.join(missing)}.")
        chosen = [loss[name] for name in names]
    else:
        chosen = list(loss) if isinstance(loss, list | tuple) else [loss] * count
    if len(chosen) != count:
        raise ValueError(f"loss must be one, or one for each of {count} outputs, got {len(chosen)}.")
    return [keras.losses.get(output_loss) for output_loss in chosen]

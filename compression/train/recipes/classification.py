"""What is measured of a network that classifies: the negative log-likelihood in nats, and the error in percent.

parts = parts_of({"train": (x, labels), "valid": (x_valid, labels_valid), "test": (x_test, labels_test)})
error_percent(model, parts["test"])
"""

import math
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from ...graph.graph import bypassed, graph_of
from ...graph.supported import IDLE_IN_FILES, OPERATIONS, activation_name
from ..held_out import check_finite, outputs_of

__all__ = [
    "Examples",
    "Parts",
    "check_network",
    "error_percent",
    "has_probabilities",
    "nll",
    "parts_of",
    "reshaped",
    "taught_loss",
]

_NAMES = ("train", "valid", "test")


class Examples(NamedTuple):
    """Inputs X [n, ...], float32, and labels [n], int32."""

    X: tf.Tensor
    labels: tf.Tensor


Parts: TypeAlias = Mapping[str, tuple[ArrayLike, ArrayLike]]
"""Inputs and labels of "train" (to learn from), "valid" (to choose by) and "test" (to report)."""


def parts_of(parts: Parts) -> dict[str, Examples]:
    """The parts as tensors; those that are `Examples` stay what they are.

    :param parts: for each of "train", "valid" and "test" inputs [n, ...] and labels [n] or [n, 1], integers of 0 or
        more.
    :raises ValueError: if a part is missing or empty, or labels are no such integers, naming the part.
    """
    if missing := [name for name in _NAMES if name not in parts]:
        raise ValueError(f"parts must have inputs and labels of {', '.join(_NAMES)}, got none of {', '.join(missing)}.")
    named_parts = ((name, parts[name]) for name in _NAMES)
    return {name: part if isinstance(part, Examples) else _examples(name, *part) for name, part in named_parts}


def check_network(model: keras.Model, parts: Mapping[str, Examples], name: str = "the data") -> None:
    """Refuse a network that does not fit the data.

    :param name: of the data, for the message.
    :raises ValueError: unless the network takes inputs of this shape and has an output for each label.
    """
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        raise ValueError(
            f"the network has {len(model.inputs)} inputs and {len(model.outputs)} outputs; labels need one of each, "
            "and compression.fit takes several."
        )
    # Shapes of inputs, and as many outputs as there are classes.
    shape = tuple(parts["train"].X.shape[1:])
    num_classes = 1 + max(int(tf.reduce_max(part.labels)) for part in parts.values())
    inputs = tuple(model.inputs[0].shape[1:])
    outputs = tuple(model.outputs[0].shape[1:])
    # A size that the network leaves open fits any.
    fits = len(inputs) == len(shape) and all(a in (b, None) for a, b in zip(inputs, shape, strict=True))
    if not fits or len(outputs) != 1 or outputs[0] < num_classes:
        raise ValueError(
            f"the network takes inputs {inputs} and gives outputs {outputs}, but {name} has inputs {shape} and labels "
            f"up to {num_classes - 1}; it must have one output for each class."
        )


def reshaped(parts: Parts, model: keras.Model) -> Parts:
    """The parts with inputs of the shape that a network takes, where they have as many numbers, such as flat images."""
    shape = tuple(model.inputs[0].shape[1:])

    def like_input(X: ArrayLike) -> np.ndarray:
        # As many numbers as the network takes, in its shape.
        array = np.asarray(X)
        fits = None not in shape and math.prod(shape) == math.prod(array.shape[1:])
        return array.reshape(len(array), *shape) if fits else array

    return {name: (like_input(X), labels) for name, (X, labels) in parts.items()}


def has_probabilities(model: keras.Model) -> bool:
    """Whether the network ends in a softmax of Keras or TensorFlow, and not in logits."""
    graph = bypassed(graph_of(model), lambda node: type(node.layer) in (*IDLE_IN_FILES, OPERATIONS["Cast"]))
    last = next(node.layer for node in reversed(graph.nodes) if graph.output_numbers[0] in node.outputs)
    # As a layer or an operation of its own, or as the activation of the last layer.
    softmax = (keras.layers.Softmax, OPERATIONS["Softmax"])
    return any(isinstance(part, softmax) for part in (last, getattr(last, "activation", None))) or (
        activation_name(last) == "softmax"
    )


def nll(outputs: tf.Tensor, labels: tf.Tensor, *, probabilities: bool) -> tf.Tensor:
    """Mean negative log-likelihood of labels [B] by outputs [B, K], in nats; [].

    :param probabilities: whether `outputs` are probabilities, and not logits; see :func:`has_probabilities`.
    """
    return tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=not probabilities))


def taught_loss(told: tf.Tensor, outputs: tf.Tensor, temperature: float) -> tf.Tensor:
    """How far outputs are from those of a teacher (Hinton, Vinyals and Dean 2015, Sec. 2), [B], in nats.

    The cross-entropy of both at a temperature, times its square, so that gradients stay as large as those of labels.

    :param told: the teacher's logits [B, K].
    :param outputs: logits [B, K].
    :param temperature: they are divided by it.
    """
    # Cross-entropy with the teacher's softened probabilities.
    teacher_probabilities = tf.nn.softmax(told / temperature)
    return temperature**2 * tf.nn.softmax_cross_entropy_with_logits(teacher_probabilities, outputs / temperature)


def error_percent(model: keras.Model, part: Examples) -> float:
    """Percent of the examples for which the largest output is not that of the label."""
    largest = tf.argmax(outputs_of(model, part.X), axis=-1, output_type=tf.int32)
    return 100.0 * int(tf.math.count_nonzero(largest != part.labels)) / len(part.X)


def _examples(name: str, X: ArrayLike | tf.Tensor, labels: ArrayLike | tf.Tensor) -> Examples:
    inputs = tf.convert_to_tensor(X, tf.float32)
    values = np.asarray(labels)
    check_finite(f"inputs of {name}", np.asarray(inputs))
    count = len(inputs)
    # Labels are integers of 0 or more, one for each example.
    is_integer = values.dtype.kind in "iu" and values.shape in ((count,), (count, 1))
    if not is_integer or count == 0 or values.min() < 0:
        raise ValueError(
            f"{name} must have examples, and a label of 0 or more for each, got {values.dtype} labels {values.shape} "
            f"for {count} examples."
        )
    return Examples(inputs, tf.constant(values.reshape(-1), tf.int32))

"""Everything about a network but its numbers, and what these are: `Architecture` and `Posterior`."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from .convolution import Convolved
from .heads import Head, RegressionHead, SignHead, SoftmaxHead
from .posterior import WeightPrior

__all__ = ["Architecture", "Posterior", "head_of", "initial_h"]


class Posterior(NamedTuple):
    """Natural parameters of all weights and means of all biases.

    :ivar h: [n_(l-1), n_l] for each layer.
    :ivar b: [n_l] for each layer; empty without biases.
    """

    h: tuple[tf.Tensor, ...]
    b: tuple[tf.Tensor, ...]


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Everything about a network but its numbers. Hashable: compiled functions are shared between equal ones.

    :ivar layer_sizes: inputs, outputs of each hidden layer (of a convolution, after pooling), outputs.
    :ivar convolutions: of each layer, or None; empty if there are none.
    """

    layer_sizes: tuple[int, ...]
    priors: tuple[WeightPrior, ...]
    head: Head
    full_covariance: bool
    has_biases: bool
    dtype: tf.DType
    convolutions: tuple[Convolved | None, ...] = ()

    @property
    def weight_shapes(self) -> tuple[tuple[int, int], ...]:
        """[n_in, n_out] of the weights of each layer; of a convolution, inputs of a filter and filters."""
        pairs = tuple(itertools.pairwise(self.layer_sizes))
        layers = zip(pairs, self.convolutions or (None,) * len(pairs), strict=True)
        return tuple(pair if shared is None else (shared.fan_in, shared.filters) for pair, shared in layers)

    @property
    def fan_ins(self) -> tuple[int, ...]:
        """K_l of each layer: its inputs and its bias."""
        return tuple(num_inputs + self.has_biases for num_inputs, _ in self.weight_shapes)

    @property
    def widest(self) -> int:
        """Numbers that an example takes in the widest layer but the first one's inputs."""
        unfolded = [shared.num_positions * shared.fan_in for shared in self.convolutions if shared is not None]
        return max(*self.layer_sizes[1:], *unfolded, 0)

    @property
    def num_layers(self) -> int:
        """L."""
        return len(self.layer_sizes) - 1

    def means(self, h: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """<W_l> of each layer."""
        return [prior.mean(h_l) for prior, h_l in zip(self.priors, h, strict=True)]

    def variances(self, h: Sequence[tf.Tensor], means: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Variances of W_l, given the means."""
        return [prior.var_from_mean(h_l, mean) for prior, h_l, mean in zip(self.priors, h, means, strict=True)]


def initial_h(architecture: Architecture, seed: tf.Tensor) -> list[tf.Tensor]:
    """h of each layer at the start: uniform with variance 1 / (K var0); 0 if there are no hidden layers."""
    start = []
    for layer, (prior, shape) in enumerate(zip(architecture.priors, architecture.weight_shapes, strict=True)):
        fan_in = architecture.fan_ins[layer]
        # Without hidden layers there is no symmetry to break.
        if architecture.num_layers == 1:
            start.append(tf.zeros(shape, architecture.dtype))
            continue
        # A uniform number within +-bound has the variance bound^2 / 3, here 1 / (K var0).
        var0 = float(prior.var(tf.zeros([], tf.float64)))
        bound = math.sqrt(3.0 / (fan_in * var0))
        start.append(
            tf.random.stateless_uniform(shape, tf.random.fold_in(seed, layer), -bound, bound, architecture.dtype)
        )
    return start


def head_of(head: str | Head, num_outputs: int) -> Head:
    """The head of a name, see `EBPNetwork`.

    :raises ValueError: for an unknown name or a thing that is no head, or a name that does not fit the outputs.
    """
    if isinstance(head, Head) and not isinstance(head, type):
        return head
    named: dict[str, Callable[[], Head]] = {
        "binary": SignHead,
        "multiclass": SignHead,
        "softmax": SoftmaxHead,
        "regression": RegressionHead,
    }
    if not isinstance(head, str) or head not in named:
        raise ValueError(
            f"head must be one of {', '.join(map(repr, named))} or a Head such as RegressionHead(0.1), got {head!r}."
        )
    # One output is one of two classes, several are one for each class.
    if (head == "binary") != (num_outputs == 1) and head != "regression":
        raise ValueError(
            f"head={head!r} does not fit {num_outputs} outputs; 'binary' has one, 'multiclass' and 'softmax' have one "
            "for each of at least two classes."
        )
    return named[head]()

"""Compression rates: the three scenarios of Section 5.2 and Table 2 of Louizos, Ullrich and Welling (2017), and bytes.

The paper counts weights only, no biases and no structure, against 32 bits a weight of the original network. With n_l
kept weights and b_l bits in layer l:

    pruning   N / sum_l n_l                       float32, in any framework
    fast      32 N / sum_l n_l b_l                fixed point, b_l = 1 + e + t_l bits
    maximum   32 N / sum_l (n_l log2 k + 32 k)    indices into a float32 codebook of k = 32 entries for each layer

With k = 32, this gives all 18 numbers of Table 2 for the two group priors, printed without their fractions. Methods
that prune single weights, such as sparse variational dropout, have to say which are left. They are counted in the CSC
format: a 32-bit row index for each weight, and 32 bits for each column and one more.
"""

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Rates", "file_rate", "paper_rates"]


class Rates(NamedTuple):
    """How many times smaller: see the module's docstring."""

    pruning: float
    fast: float
    maximum: float


def paper_rates(
    original_weights: int,
    kept_weights: Sequence[int],
    bits: Sequence[int],
    *,
    k: int = 32,
    csc_columns: Sequence[int] | None = None,
) -> Rates:
    """The three rates as the paper counts them.

    :param original_weights: N, weights of the original network without biases.
    :param kept_weights: n_l of each layer: k_h k_w F_in F_out of a convolution, inputs times outputs of a dense layer.
    :param bits: b_l, all bits of a weight of each layer, including sign and exponent.
    :param k: entries of each codebook; an index takes ceil(log2 k) bits.
    :param csc_columns: for methods that prune single weights, the number of outputs of each layer: the indices of the
        CSC format are counted, too. None: nothing is stored besides the weights.
    :raises ValueError: if there are no layers, numbers of layers differ, or a number is not positive.
    """
    # One number for each layer, none of them 0.
    if len(kept_weights) != len(bits) or not kept_weights:
        raise ValueError(
            f"kept_weights and bits must have one number for each layer, got {len(kept_weights)} and {len(bits)}."
        )
    if original_weights < 1 or min(kept_weights) < 1 or min(bits) < 1 or k < 1:
        raise ValueError(
            f"weights, bits and k must be positive, got {original_weights}, {list(kept_weights)}, {list(bits)}, {k}; a "
            "layer without weights has no rate."
        )
    total = sum(kept_weights)
    # CSC: a row index for each weight and a pointer for each column and the end, 32 bits each.
    place_bits = (
        0 if csc_columns is None else 32 * sum(n + c + 1 for n, c in zip(kept_weights, csc_columns, strict=True))
    )
    index_bits = math.ceil(math.log2(k))
    # Table 2: by pruning alone, with fixed-point numbers, with indices into codebooks of float32 numbers.
    return Rates(
        pruning=32 * original_weights / (32 * total + place_bits),
        fast=32 * original_weights / (sum(n * b for n, b in zip(kept_weights, bits, strict=True)) + place_bits),
        maximum=32 * original_weights / (index_bits * total + 32 * k * len(kept_weights) + place_bits),
    )


def file_rate(original_parameters: int, path: str | os.PathLike[str]) -> float:
    """Float32 bytes of the original network, biases included, over the size of the file at `path` on disk.

    :param original_parameters: all numbers of the original network, weights and biases.
    :raises OSError: if there is no such file.
    """
    return 4 * original_parameters / os.path.getsize(path)

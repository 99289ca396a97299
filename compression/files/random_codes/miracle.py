"""Minimal random code learning, "MIRACLE" (Havasi, Peharz and Hernandez-Lobato, 2018): a network in a given size.

    coded = random_code(model, "model.bcz", x, y, loss=..., num_bytes=1500)
    model = load("model.bcz")

Weights have a posterior q, independent Gaussians, and the prior N(0, s^2), with a scale s for each kernel and bias that
is learnt, too. They are cut into random blocks, and each block's KL(q || p) is held at the C bits that the file spends
on a block, by a weight beta_b of its own that grows while the KL is above C and falls while it is below:

    loss = mean loss of the examples + sum_b beta_b KL_b / N

When that has settled, one block after the other is given the values of one of 2^C draws from the prior, chosen by
importance sampling (`compression.files.random_codes.random_coding`), and in between the blocks that are left train on
and make up for it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from ...graph.graph import graph_of, kernel_variables
from ...graph.kinds import check_trainable
from ...graph.rebuild import copy_of
from ...train.held_out import endless, losses_of
from ..container import bcz_bytes, check_storable, coded_variables, save_bcz
from .random_coding import (
    MAX_BITS,
    MAX_BLOCK,
    MAX_WEIGHTS,
    RandomCode,
    block_ends,
    draw_index,
    index_log_weights,
    near_scale,
    scale_of,
    sizes_of,
    weight_places,
)
from .random_numbers import UNIT, chosen_normals, normal_table, permutation

__all__ = ["CodedFile", "random_code"]


_SPEED = 8.0
"""Logarithms of standard deviations and scales are stored divided by it, and Adam moves them that much faster."""
_FIRST_STD = 0.3  # of a weight, in units of the scale of its prior
_LEAST_SCALE = 0.01
_FIRST_BETA = 0.01
# of the logarithm of beta, at most: in the epochs of the posterior, in a step
_BETA_TRAVEL = 20.0
_BETA_RATE = 0.05
_LAST_RATE = 0.1  # of the learning rate


class CodedFile(NamedTuple):
    """A network that was written as a random code.

    :ivar path: of the file.
    :ivar bytes: its size.
    :ivar model: what the file gives back.
    :ivar code: what it holds.
    :ivar kl_bits: KL(q || p) of each block when it was coded, in bits, [B].
    """

    path: Path
    bytes: int
    model: keras.Model
    code: RandomCode
    kl_bits: NDArray[np.float64]


def random_code(
    model: keras.Model,
    path: str | os.PathLike[str],
    x: object,
    y: object = None,
    *,
    loss: object,
    num_bytes: int,
    block_bits: int = 12,
    epochs: float = 20,
    code_epochs: float = 20,
    batch_size: int = 32,
    learning_rate: float = 3e-3,
    sharing: Mapping[str, int] | None = None,
    seed: int = 0,
    verbose: int = 0,
) -> CodedFile:
    """Write a trained plain network as a file of at most `num_bytes` bytes, by numbers of random draws.

    Kernels, and biases of layers with one kernel, are coded; other weights, as those of batch normalisation, stay as
    they are, and dropout is off. What matters is how much of the network is not needed: a network that :func:`fit` has
    shrunk before needs fewer bits for the rest.

    :param model: a trained Sequential or functional model of layers that a file can hold; it is not changed.
    :param path: of the file, usually with the ending .bcz; it is replaced if it exists.
    :param x: inputs [N, ...], of several inputs nested as the model takes them; or a finite `tf.data.Dataset` of
        batches of inputs and targets, without `y`.
    :param y: targets [N, ...], of several outputs nested as the model gives them.
    :param loss: any Keras loss; of several outputs as for `keras.Model.compile`.
    :param num_bytes: of the file, at most.
    :param block_bits: C, from 1 to 24. More is nearer to the posterior at the same size; time and memory grow by 2^C.
    :param epochs: of the posterior.
    :param code_epochs: between the blocks, in all.
    :param batch_size: examples in a step, of arrays.
    :param learning_rate: of Adam; it falls to a tenth over all steps, half a cosine.
    :param sharing: names of layers, and how many weights of the kernel share one, in random places (Chen et al., 2015).
    :param seed: of order, noise and draws; at least 0 and below 2**31.
    :param verbose: 0 prints nothing; 1 how many steps there are, and each tenth of the blocks; 2 each block.
    :raises ValueError: if a number is out of range, the file would be too small for the network, a layer cannot be
        stored or is not there, numbers of examples differ, or training diverges.
    """
    is_positive = min(epochs, code_epochs) >= 0 and batch_size >= 1
    if not 1 <= block_bits <= MAX_BITS or not 0 <= seed < 2**31 or not is_positive:
        raise ValueError(
            f"block_bits must be 1 to {MAX_BITS}, seed 0 or more and below 2**31, epochs not negative, and batch_size "
            f"at least 1, got {block_bits=}, {seed=}, {epochs=}, {code_epochs=}, {batch_size=}."
        )
    check_storable(model)
    check_trainable(graph_of(model))
    model = copy_of(model)
    # As many blocks as the bytes have room for, and the posterior around the trained weights.
    code = _empty_code(model, num_bytes, block_bits, _sharing(model, sharing or {}), seed)
    data, num_train, steps = endless(x, y, batch_size, seed)
    posterior_steps = math.ceil(epochs * steps)
    coding_steps = math.ceil(code_epochs * steps)
    posterior = _Posterior(model, code, loss, num_train, min(_BETA_RATE, _BETA_TRAVEL / max(1, posterior_steps)))
    rate = keras.optimizers.schedules.CosineDecay(learning_rate, max(1, posterior_steps + coding_steps), _LAST_RATE)
    optimizer = keras.optimizers.Adam(rate)
    optimizer.build(posterior.trained)
    if verbose:
        print(
            f"{posterior_steps} steps of the posterior, then {coding_steps} while {len(code.indices)} blocks are coded",
            flush=True,
        )
    # Train the posterior until the KL of each block is near C bits.
    run = posterior.steps_function(optimizer)
    batches = iter(data)
    run(batches, tf.constant(posterior_steps))
    # Code one block after the other, and train on what is left in between.
    code, kl = _coded(posterior, code, lambda count: run(batches, tf.constant(count)), coding_steps, verbose)
    # What the file gives back: the draws by their numbers.
    for variable, value in zip(posterior.variables, code.values(), strict=True):
        variable.assign(value)
    num_written = save_bcz(model, path, code)
    return CodedFile(Path(path), num_written, model, code, kl / math.log(2))


def _sharing(model: keras.Model, sharing: Mapping[str, int]) -> tuple[int, ...]:
    """Of each coded variable, how many of its weights share one."""
    kernels = {id(variable): layer.name for layer, variable in kernel_variables(model)}
    shares = tuple(int(sharing.get(kernels.get(id(variable), ""), 1)) for variable in coded_variables(model))
    if unknown := set(sharing) - set(kernels.values()):
        raise ValueError(
            f"sharing names the layer {sorted(unknown)[0]!r}, which has no kernel; it must be "
            f"one of {', '.join(sorted(set(kernels.values())))}."
        )
    if min(shares, default=1) < 1:
        raise ValueError(f"sharing must be at least 1, got {dict(sharing)}.")
    return shares


def _empty_code(model: keras.Model, num_bytes: int, block_bits: int, sharing: tuple[int, ...], seed: int) -> RandomCode:
    """A code of as many blocks as the bytes have room for."""
    shapes = tuple(tuple(variable.shape) for variable in coded_variables(model))
    if not shapes:
        raise ValueError(f"the model {model.name} has no kernels, so there is nothing to code.")
    if (total := sum(math.prod(shape) for shape in shapes)) > MAX_WEIGHTS:
        raise ValueError(
            f"the model {model.name} must have at most {MAX_WEIGHTS} weights, got {total}; shrink it first."
        )
    num_weights = sum(sizes_of(shapes, sharing))
    scales = (0,) * len(shapes)
    # In as many bytes as the weights take as they are, each has a block of its own already.
    num_bytes = min(num_bytes, len(bcz_bytes(model)))
    # Blocks for all of the bytes; what such a file is too long by comes off them.
    max_blocks = max(1, 8 * num_bytes // block_bits)
    code = RandomCode(seed, block_bits, scales, sharing, np.zeros(max_blocks, np.int64), shapes)
    excess = len(bcz_bytes(model, code)) - num_bytes
    count = min(num_weights, max_blocks - -(-8 * max(0, excess) // block_bits))
    # A block has at most `MAX_BLOCK` weights.
    min_blocks = -(-num_weights // MAX_BLOCK)
    if count < min_blocks:
        raise ValueError(
            f"num_bytes must be at least {num_bytes + excess - (max_blocks - min_blocks) * block_bits // 8 + 1} for "
            f"{num_weights} weights in blocks of at most {MAX_BLOCK}, got {num_bytes}; share weights, or give more."
        )
    return code._replace(indices=np.zeros(count, np.int64))


def _coded(
    posterior: _Posterior, code: RandomCode, train: Callable[[int], None], steps: int, verbose: int
) -> tuple[RandomCode, NDArray[np.float64]]:
    """The code of one block after the other, with `steps` steps of training in between, and their KLs in nats."""
    code = code._replace(scales=posterior.round_scales())
    rng = np.random.default_rng(code.seed)
    count = len(code.indices)
    indices = code.indices.copy()
    kl = np.zeros(count)
    for block, members in enumerate(np.split(posterior.order, posterior.ends[:-1])):
        # The KL of the block to its prior, in closed form for Gaussians.
        mean, std, scale = posterior.of(members)
        kl[block] = np.sum(np.log(scale / std) + (std**2 + mean**2) / (2 * scale**2) - 0.5)
        # Importance sampling: one of 2^C draws from the prior, in proportion to q(w_k) / p(w_k).
        log_weights = index_log_weights(mean, std, scale, code.seed, block, code.block_bits)
        if not np.all(np.isfinite(log_weights)):
            raise ValueError("training diverged: posteriors are not finite; lower learning_rate, or check the data.")
        indices[block] = draw_index(log_weights, rng)
        # The weights of the block are those of the draw from now on.
        sizes = np.array([len(members)])
        normals = chosen_normals(normal_table(), code.seed, block, indices[block : block + 1], sizes)
        posterior.fix(members, (scale / UNIT * normals).astype(np.float32))
        if verbose >= 2 or (verbose and block % max(1, count // 10) == 0):
            bits = kl[block] / math.log(2)
            print(f"block {block + 1} of {count}: a KL of {bits:.1f} bits, {code.block_bits} in the file", flush=True)
        # Steps are spread evenly over the blocks.
        if num_steps := (block + 1) * steps // count - block * steps // count:
            train(num_steps)
    return code._replace(indices=indices), kl


class _Posterior:
    """The Gaussians of all different weights, [N], in one vector each, and the weights that are fixed."""

    def __init__(self, model: keras.Model, code: RandomCode, loss: object, num_train: int, beta_rate: float) -> None:
        self._model = model
        self._loss = loss
        self._num_train = num_train
        self._beta_rate = beta_rate
        self.variables = coded_variables(model)
        self._shapes = code.shapes
        self._sizes = sizes_of(code.shapes, code.sharing)
        self._maps = weight_places(code.seed, code.shapes, code.sharing)
        N = sum(self._sizes)
        count = len(code.indices)
        # Blocks are random parts of the weights, of nearly equal sizes.
        self.order = permutation(code.seed, N)
        self.ends = block_ends(N, count)
        block_of = np.zeros(N, np.int32)
        block_of[self.order] = np.repeat(np.arange(count), np.diff(self.ends, prepend=0))
        self._block_of = tf.constant(block_of)
        self._owner = np.repeat(np.arange(len(self._sizes)), self._sizes)
        # q begins at the trained weights; the scale of a prior is their root mean square.
        values = [self._distinct(number, np.asarray(v)) for number, v in enumerate(self.variables)]
        scales = [max(_LEAST_SCALE, float(np.sqrt(np.mean(np.square(value))))) for value in values]
        log_scales = np.log(np.array(scales)).astype(np.float32)
        self._mean = tf.Variable(np.concatenate(values))
        self._log_std = tf.Variable((log_scales[self._owner] + np.log(_FIRST_STD)).astype(np.float32) / _SPEED)
        self._log_scale = tf.Variable(log_scales / _SPEED)
        # Before the first block scales are rounded as in the file; then block after block is fixed.
        self._rounded = tf.Variable(tf.zeros_like(self._log_scale))
        self._is_rounded = tf.Variable(False)
        self._fixed = tf.Variable(tf.zeros([N]))
        self._is_fixed = tf.Variable(tf.zeros([N], tf.bool))
        self._log_beta = tf.Variable(tf.fill([count], math.log(_FIRST_BETA)))
        self._budget = code.block_bits * math.log(2)
        self._step = tf.Variable(0)
        self._seed = tf.constant([code.seed, 0x4D43])
        self.trained = [self._mean, self._log_std, self._log_scale]

    def _distinct(self, number: int, value: NDArray[np.float32]) -> NDArray[np.float32]:
        """The mean of the weights that share one."""
        ids = self._maps[number]
        size = self._sizes[number]
        if isinstance(ids, slice):
            return value.ravel()
        return (np.bincount(ids, value.ravel(), size) / np.maximum(1, np.bincount(ids, minlength=size))).astype("f4")

    def of(self, members: NDArray[np.int64]) -> tuple[NDArray[np.float64], ...]:
        """Means and standard deviations of weights, and the scales of their priors, [n] each."""
        mean, log_std = (np.asarray(tf.gather(part, members), np.float64) for part in (self._mean, self._log_std))
        return mean, np.exp(_SPEED * log_std), np.array([scale_of(s) for s in self._scales])[self._owner[members]]

    def fix(self, members: NDArray[np.int64], values: NDArray[np.float32]) -> None:
        """Weights that have these values from now on."""
        self._fixed.scatter_nd_update(members[:, None], values)
        self._is_fixed.scatter_nd_update(members[:, None], np.ones(len(members), bool))

    def round_scales(self) -> tuple[int, ...]:
        """The scales of the priors from now on, as a file has them."""
        self._scales = tuple(near_scale(scale) for scale in np.exp(_SPEED * self._log_scale.numpy()))
        self._rounded.assign(np.log([scale_of(scale) for scale in self._scales]).astype(np.float32))
        self._is_rounded.assign(True)
        return self._scales

    def steps_function(self, optimizer: keras.optimizers.Optimizer) -> Callable[[Iterator, tf.Tensor], None]:
        """A function (iterator of batches, number of steps) that trains."""

        @tf.function(reduce_retracing=True)
        def run(batches: Iterator, count: tf.Tensor) -> None:
            for _ in tf.range(count):
                x, y = next(batches)
                with tf.GradientTape() as tape:
                    kl = self._kl()
                    loss = self._data_loss(x, y) + tf.reduce_sum(tf.exp(self._log_beta) * kl) / self._num_train
                optimizer.apply(tape.gradient(loss, self.trained), self.trained)
                # beta_b grows while the KL of its block is above C bits, and falls while it is below.
                self._log_beta.assign_add(self._beta_rate * tf.clip_by_value(kl / self._budget - 1, -1, 1))
                self._step.assign_add(1)

        return run

    def _kl(self) -> tf.Tensor:
        """Of each block what is not fixed, in nats, [B]."""
        log_scale = tf.where(self._is_rounded, self._rounded, _SPEED * self._log_scale)
        log_scale = tf.repeat(log_scale, self._sizes)
        log_std = _SPEED * self._log_std
        # KL = log(s / std) + (std^2 + mean^2) / (2 s^2) - 1/2, where a weight is not fixed.
        square = tf.exp(2 * (log_std - log_scale)) + tf.square(self._mean) * tf.exp(-2 * log_scale)
        kl = tf.where(self._is_fixed, 0.0, log_scale - log_std + 0.5 * (square - 1))
        return tf.math.unsorted_segment_sum(kl, self._block_of, len(self.ends))

    def _data_loss(self, x: ArrayLike, y: ArrayLike) -> tf.Tensor:
        """The mean loss of a batch for one draw of the weights."""
        # One draw of all weights for the batch.
        noise = tf.random.stateless_normal(self._mean.shape, tf.random.fold_in(self._seed, self._step))
        sample = self._mean + tf.exp(_SPEED * self._log_std) * noise
        parts = tf.split(tf.where(self._is_fixed, self._fixed, sample), self._sizes)
        weights = {
            id(variable): tf.reshape(part if isinstance(places, slice) else tf.gather(part, places), shape)
            for variable, part, places, shape in zip(self.variables, parts, self._maps, self._shapes, strict=True)
        }
        model = self._model
        # Call the network with these in place of its variables.
        lists = [
            [weights.get(id(v), v.value) for v in part]
            for part in (model.trainable_variables, model.non_trainable_variables)
        ]
        outputs, _ = model.stateless_call(*lists, x, training=False)
        targets = keras.tree.flatten(y)
        flat_outputs = keras.tree.flatten(outputs)
        losses = losses_of(self._loss, model, outputs)
        return tf.add_n([tf.reduce_mean(loss(t, o)) for loss, t, o in zip(losses, targets, flat_outputs, strict=True)])

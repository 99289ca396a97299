"""Chains at beta = 1 besides those of the ladder: whose particles drive the gradient, and how they take turns."""

from typing import NamedTuple

import tensorflow as tf

from rbm_tracking.model.rbm import RBM
from rbm_tracking.track.tempering import Chains, gibbs

__all__ = ["Negative", "at_target", "moved_target", "short_chains", "take_turns"]

_STREAM = 0x5BD1E995  # of the noise of target chains: that of the ladder has the seed itself


class Negative(NamedTuple):
    """What drives the gradient downwards: states `v` [R, n_v] with their activations `a` [R, n_h]; `num_tracked`, how
    many of them the tracker uses, too; `weights` [R] with the sum 1, None for 1 / R each."""

    v: tf.Tensor
    a: tf.Tensor
    num_tracked: int = 0
    weights: tf.Tensor | None = None


def take_turns(chains: Chains, target: Chains) -> tuple[Chains, Chains]:
    """The target chains stand in a queue: its first N go into the ladder at beta = 1, and those from there to its end.

    A permutation of particles that have one distribution leaves it as it is, and modes that particles find at high
    temperatures reach all target chains.

    :param chains: [M, N].
    :param target: [1, C].
    """
    is_top = tf.equal(chains.level, 0)[..., None]
    num_chains = chains.level.shape[1]

    def turn(inside: tf.Tensor, queue: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # A column has one particle at beta = 1: it goes to the end of the queue, for the first one in it.
        top = tf.reduce_sum(tf.where(is_top, inside, tf.zeros_like(inside)), axis=0)
        both = tf.concat([queue[0], top], axis=0)
        return tf.where(is_top, both[None, :num_chains], inside), both[None, num_chains:]

    (v, queue_v) = turn(chains.v, target.v)
    (a, queue_a) = turn(chains.a, target.a)
    return chains._replace(v=v, a=a), target._replace(v=queue_v, a=queue_a)


def moved_target(
    rbm: RBM, target: Chains, *, steps: int, seed: tf.Tensor, step: tf.Tensor, generator: str = "threefry"
) -> Chains:
    """`steps` rounds of Gibbs sampling at beta = 1, with noise of its own."""
    # The ladder has the same steps: with its stream, chains would move alike.
    stream_seed = tf.bitwise.bitwise_xor(seed, tf.constant([0, _STREAM]))
    beta = tf.ones([1], rbm.W.dtype)
    return gibbs(rbm, target, beta, steps=steps, seed=stream_seed, step=step, generator=generator)


def at_target(chains: Chains, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """States [count, n_v] and activations [count, n_h] at beta = 1 of the first columns of the ladder."""
    # Each column has one particle there, in any of its slots.
    is_target = tf.equal(chains.level, 0)
    slot = tf.argmax(tf.cast(is_target, tf.float32), axis=0, output_type=tf.int32)  # [N], of the particle at beta = 1
    index = tf.stack([slot[:count], tf.range(count, dtype=tf.int32)], axis=1)
    return tf.gather_nd(chains.v, index), tf.gather_nd(chains.a, index)


def short_chains(v: tf.Tensor, a: tf.Tensor) -> Chains:
    """Chains at beta = 1 that start at rows v [B, n_v] with activations a."""
    return Chains(v[None], a[None], tf.zeros([1, v.shape[0]], tf.int32))

"""A step up the gradient of the likelihood, and the bias of log Z's change by particles that drove the step."""

from typing import NamedTuple

import tensorflow as tf

from rbm_tracking.model.rbm import RBM, activations, matmul_rows
from rbm_tracking.track.tempering import Chains

__all__ = ["Step", "gradient_step", "moved_activations", "reuse_bias", "row_mean"]


class Step(NamedTuple):
    """A change of the parameters: W by left' right, of `left` [R, n_h] and `right` [R, n_v]; `b` and `c`."""

    left: tf.Tensor
    right: tf.Tensor
    b: tf.Tensor
    c: tf.Tensor


def gradient_step(
    v_data: tf.Tensor,
    h_data: tf.Tensor,
    v_model: tf.Tensor,
    h_model: tf.Tensor,
    rate: tf.Tensor,
    offsets: tuple[tf.Tensor, tf.Tensor] | None,
    weights: tf.Tensor | None = None,
    model_weights: tf.Tensor | None = None,
) -> Step:
    """The learning rate times the gradient of the log-likelihood: data's mean of -dF/dtheta minus the particles'.

    :param offsets: of the centred gradient; None for the plain one.
    :param weights: of the data, [B], with the sum 1; None for 1 / B each.
    :param model_weights: of the particles, as `weights`.
    """
    # The steps of b and c: means of the data less those of the particles.
    d_v = row_mean(v_data, weights) - row_mean(v_model, model_weights)
    d_h = row_mean(h_data, weights) - row_mean(h_model, model_weights)
    # The step of W as a product of few rows, those of the data and of the particles.
    hidden_factors = tf.concat([_weighted(h_data, weights), -_weighted(h_model, model_weights)], axis=0)
    visible_factors = tf.concat([v_data, v_model], axis=0)
    # The centred gradient: offsets enter the step of W as two more rows, and change those of the biases.
    if offsets is not None:
        v_mean, h_mean = offsets
        hidden_factors = tf.concat([hidden_factors, -d_h[None], -h_mean[None]], axis=0)
        visible_factors = tf.concat([visible_factors, v_mean[None], d_v[None]], axis=0)
        # [R]
        across_v = tf.linalg.matvec(visible_factors, v_mean)
        across_h = tf.linalg.matvec(hidden_factors, h_mean)
        d_v = d_v - tf.linalg.matvec(visible_factors, across_h, transpose_a=True)
        d_h = d_h - tf.linalg.matvec(hidden_factors, across_v, transpose_a=True)
    return Step(rate * hidden_factors, visible_factors, rate * d_v, rate * d_h)


def _weighted(h: tf.Tensor, weights: tf.Tensor | None) -> tf.Tensor:
    return h / h.shape[0] if weights is None else h * weights[:, None]


def row_mean(x: tf.Tensor, weights: tf.Tensor | None) -> tf.Tensor:
    """Mean of the rows of x [B, n], [n], each with its weight [B] if there are weights, whose sum is 1."""
    return tf.reduce_mean(x, axis=0) if weights is None else tf.linalg.matvec(x, weights, transpose_a=True)


def moved_activations(chains: Chains, step: Step, old: RBM, new: RBM, kept: tf.Tensor | None = None) -> tf.Tensor:
    """W v + c of the particles after a step: anew, or from the old ones and the step's factors if that is less work.

    :param kept: the part of W that is left before the step is added, []; None for all of it.
    """
    n_h, n_v = new.W.shape
    # A step of many rows costs more than the product with the new W.
    if step.left.shape[0] * (n_h + n_v) >= n_h * n_v:
        return activations(new, chains.v)
    # W v + c changes by left'(right v), and by the step of c.
    change = matmul_rows(matmul_rows(chains.v, step.right, transpose_b=True), step.left)
    if kept is None:
        return chains.a + change + step.c
    return kept * (chains.a - old.c) + change + new.c


def reuse_bias(
    v: tf.Tensor,
    h: tf.Tensor,
    rate: tf.Tensor,
    offsets: tuple[tf.Tensor, tf.Tensor],
    slopes: tf.Tensor | None = None,
) -> tf.Tensor:
    """First-order bias of O^(dt) at the temperature whose particles drove the gradient, nats, [].

    The step moves the parameters by rate * (data's gradient - mean of phi(x_n)), phi = d log q~ / d theta, and the same
    x_n then estimate the change of log Z, so to first order the estimate is off by
    E[(mean phi - E phi)'(step)] = -rate tr Cov(phi) / N. The trace follows from the N x N matrix of inner products of
    the phi(x_n), without forming them.

    :param v: particles [N, n_v];
    :param h: their hidden means [N, n_h];
    :param rate: learning rate.
    :param offsets: of the centred gradient, which is plain gradient ascent in centred parameters; zeros otherwise.
    :param slopes: phi of further parameters that the step moves, [N, K].
    """
    count = v.shape[0]
    v_mean, h_mean = offsets
    v_c = v - v_mean
    h_c = h - h_mean
    # Inner products of phi = (h v', v, h) for all pairs of particles.
    vv = tf.linalg.matmul(v_c, v_c, transpose_b=True)
    hh = tf.linalg.matmul(h_c, h_c, transpose_b=True)
    gram = vv * hh + vv + hh
    if slopes is not None:
        gram += tf.linalg.matmul(slopes, slopes, transpose_b=True)
    # The trace of Cov(phi) from these, with N - 1 in the denominator.
    total = tf.linalg.trace(gram) - tf.reduce_sum(gram) / count
    return -rate * total / ((count - 1.0) * count)

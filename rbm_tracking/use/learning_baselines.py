"""Contrastive divergence and persistent contrastive divergence, the usual ways to train an RBM (Sections 1 and 2).

Both climb the mean log-likelihood of a minibatch, whose gradient is a difference of means,

    d/dW = E_data[h v'] - E_model[h v'],      d/db = E_data[v] - E_model[v],      d/dc = E_data[h] - E_model[h],

and replace the model's means by those of states v of Gibbs chains: k rounds from the data (CD-k, biased), or k rounds
from where the chains of the last update ended (PCD-k, also called stochastic maximum likelihood). Hidden units enter
by their probabilities given v. Neither knows log Z.
"""

import tensorflow as tf

from rbm_tracking.model.random import key_at
from rbm_tracking.model.rbm import RBM, activations, gibbs_round, hidden_probs

__all__ = ["cd_step", "gibbs_chain", "likelihood_gradient", "pcd_step"]


def cd_step(
    rbm: RBM,
    v: tf.Tensor,
    seed: tf.Tensor,
    *,
    learning_rate: tf.Tensor | float,
    k: int = 1,
    generator: str = "threefry",
) -> RBM:
    """Parameters after one update of contrastive divergence, CD-k, with the minibatch v [B, n_v].

    :param seed: int32 [2], another one for each update.
    :param k: rounds of Gibbs sampling, at least 1.
    """
    return _ascend(rbm, likelihood_gradient(rbm, v, gibbs_chain(rbm, v, seed, k=k, generator=generator)), learning_rate)


def pcd_step(
    rbm: RBM,
    chains: tf.Tensor,
    v: tf.Tensor,
    seed: tf.Tensor,
    *,
    learning_rate: tf.Tensor | float,
    k: int = 1,
    generator: str = "threefry",
) -> tuple[RBM, tf.Tensor]:
    """Parameters and chains after one update of persistent contrastive divergence, PCD-k.

    :param chains: states [C, n_v] of the last update; at first data or zeros.
    :param v: minibatch [B, n_v].

    Other arguments as for :func:`cd_step`.
    """
    chains = gibbs_chain(rbm, chains, seed, k=k, generator=generator)
    return _ascend(rbm, likelihood_gradient(rbm, v, chains), learning_rate), chains


def gibbs_chain(rbm: RBM, v: tf.Tensor, seed: tf.Tensor, *, k: int, generator: str = "threefry") -> tf.Tensor:
    """v [C, n_v] after k rounds of h ~ p(h | v), v ~ p(v | h).

    :raises ValueError: if k is less than 1.
    """
    if k < 1:
        raise ValueError(f"k, the rounds of Gibbs sampling, must be at least 1, got {k}.")

    def step(i: tf.Tensor, v: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return i + 1, gibbs_round(rbm, activations(rbm, v), (key_at(seed, i, 0), key_at(seed, i, 1)), generator)

    return tf.while_loop(lambda i, _: i < k, step, (tf.constant(0), v))[1]


def likelihood_gradient(rbm: RBM, data: tf.Tensor, model: tf.Tensor) -> RBM:
    """Estimate of the gradient of the mean log-likelihood from data [B, n_v] and states of the model [C, n_v]."""
    gradient = [tf.zeros_like(value) for value in (rbm.W, rbm.b, rbm.c)]
    # The mean of -dF/dtheta over the data, less that over the states of the model
    for v, sign in ((data, 1.0), (model, -1.0)):
        h = hidden_probs(rbm, v)
        count = sign / v.shape[0]
        means = tf.linalg.matmul(h, v, transpose_a=True), tf.reduce_sum(v, axis=0), tf.reduce_sum(h, axis=0)
        gradient = [total + count * mean for total, mean in zip(gradient, means, strict=True)]
    W, b, c = gradient
    return RBM(W, b, c, rbm.visible, rbm.hidden)


def _ascend(rbm: RBM, gradient: RBM, learning_rate: tf.Tensor | float) -> RBM:
    W, b, c = (value + learning_rate * slope for value, slope in zip(rbm[:3], gradient[:3], strict=True))
    return rbm._replace(W=W, b=b, c=c)

"""The sparsity penalty of fDARN (Gregor et al., 2014, Section 2.3), whose units are to be rare."""

from __future__ import annotations

import math

import tensorflow as tf

from darn.model.gradients import Estimate
from darn.model.replicas import mean_over_replicas

__all__ = ["sparsity_penalty"]


def sparsity_penalty(estimated: Estimate, rho: float) -> tf.Tensor:
    """sum_j KL(Bernoulli(rho) || Bernoulli(mean of q_j over the minibatch)), [], nats.

    The paper names a sparsity penalty for fDARN without a formula; this one is ours.
    """
    total = []
    for q in estimated.q:
        mean = tf.clip_by_value(mean_over_replicas(tf.reduce_mean(q, axis=0)), 1e-6, 1.0 - 1e-6)
        active = rho * (math.log(rho) - tf.math.log(mean))
        silent = (1.0 - rho) * (math.log1p(-rho) - tf.math.log1p(-mean))
        total.append(tf.reduce_sum(active + silent))
    return tf.add_n(total)

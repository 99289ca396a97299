"""Expectation backpropagation in plain NumPy: enumeration of all weights, loops over neurons, exact posteriors."""

import itertools
import math

import numpy as np
from scipy import stats

#: log P0 of the values of each kind of weight.
VALUES: dict[str, dict[float, float]] = {
    "binary": {-1: 0.0, 1: 0.0},
    "ternary": {-1: 0.0, 0: 0.6, 1: 0.0},
    "levels": {-2: 0.0, -0.5: 0.4, 1: -0.3},
}


def weight_probabilities(h: float, log_prior: dict) -> dict[float, float]:
    """P(w), proportional to P0(w) exp(h w), value by value."""
    terms = {w: math.exp(log_p + h * w) for w, log_p in log_prior.items()}
    total = sum(terms.values())
    return {w: term / total for w, term in terms.items()}


def input_moments(v: np.ndarray, h: np.ndarray, b: float, log_prior: dict) -> tuple[float, float]:
    """Mean and variance of u = (sum of w v + bias) / sqrt(K) for one neuron, by enumeration; the bias is N(b, 1)."""
    fan_in = len(v) + 1
    mean = square = 0.0
    tables = [weight_probabilities(h_j, log_prior) for h_j in h]
    for choice in itertools.product(*[table.items() for table in tables]):
        p = math.prod(probability for _, probability in choice)
        u = sum(w * v_j for (w, _), v_j in zip(choice, v, strict=True))
        mean += p * u
        square += p * u**2
    return (mean + b) / math.sqrt(fan_in), (square - mean**2 + 1.0) / fan_in


def hidden_moments(v: np.ndarray, h: np.ndarray, b: float, log_prior: dict) -> tuple[float, float]:
    """The same for independent random signs as inputs, whose means are `v`."""
    fan_in = len(v) + 1
    mean = square = 0.0
    tables = [weight_probabilities(h_j, log_prior) for h_j in h]
    for choice in itertools.product(*[table.items() for table in tables]):
        for signs in itertools.product((-1, 1), repeat=len(v)):
            p = math.prod(probability for _, probability in choice)
            p *= math.prod((1 + s * v_j) / 2 for s, v_j in zip(signs, v, strict=True))
            u = sum(w * s for (w, _), s in zip(choice, signs, strict=True))
            mean += p * u
            square += p * u**2
    return (mean + b) / math.sqrt(fan_in), (square - mean**2 + 1.0) / fan_in


def binary_update(
    h: list[np.ndarray], b: list[np.ndarray], x: np.ndarray, y: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """New h [n_in, n_out] and b of a network of binary weights after one example: Sec. 4 of the paper, index by index.

    Eq. (4.2) is in the paper's own form, and phi / Phi comes from SciPy.
    """
    M = [np.tanh(h_l) for h_l in h]
    v, mu, sigma2 = [x], [], []
    for layer, (M_l, b_l) in enumerate(zip(M, b, strict=True)):
        n_in, n_out = M_l.shape
        K = n_in + 1
        mu_l, sigma2_l = np.zeros(n_out), np.zeros(n_out)
        for k in range(n_out):
            mu_l[k] = (sum(M_l[r, k] * v[-1][r] for r in range(n_in)) + b_l[k]) / math.sqrt(K)
            for r in range(n_in):
                v2 = v[-1][r] ** 2
                second_moment = v2 if layer == 0 else 1.0
                sigma2_l[k] += (second_moment - M_l[r, k] ** 2 * v2) / K
            sigma2_l[k] += 1.0 / K
        mu.append(mu_l)
        sigma2.append(sigma2_l)
        v.append(2 * stats.norm.cdf(mu_l / np.sqrt(sigma2_l)) - 1)
    sigma = np.sqrt(sigma2[-1])
    delta = y * stats.norm.pdf(0, mu[-1], sigma) / stats.norm.cdf(y * mu[-1] / sigma)
    new_h, new_b = list(h), list(b)
    for layer in reversed(range(len(h))):
        K = M[layer].shape[0] + 1
        new_h[layer] = h[layer] + np.outer(v[layer], delta) / math.sqrt(K)
        new_b[layer] = b[layer] + delta / math.sqrt(K)
        if layer:
            density = stats.norm.pdf(0, mu[layer - 1], np.sqrt(sigma2[layer - 1]))
            delta = 2 / math.sqrt(K) * density * (M[layer] @ delta)
    return new_h, new_b


def exact_binary_posterior(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All sign vectors [2^D, D] and their probabilities given y = sign(X w) for odd D and X of signs (no ties)."""
    W = np.array(list(itertools.product((-1.0, 1.0), repeat=X.shape[1])))
    legal = np.all((W @ X.T > 0) == (y > 0), axis=1).astype(float)
    return W, legal / legal.sum()

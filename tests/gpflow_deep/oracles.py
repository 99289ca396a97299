"""What the deep GP computes, in plain NumPy: explicit inverses, loops over outputs and samples, no whitening."""

import numpy as np
from numpy.typing import ArrayLike

#: GPflow's default jitter: on the diagonal of every Kuu that is factorised.
JITTER = 1e-6


def rbf(X: np.ndarray, Y: np.ndarray, variance: ArrayLike, lengthscales: ArrayLike) -> np.ndarray:
    """Squared-exponential kernel between the rows of X and Y, by differences."""
    difference = (X[:, None, :] - Y[None, :, :]) / np.asarray(lengthscales)
    return np.asarray(variance) * np.exp(-0.5 * np.sum(difference**2, axis=-1))


def inducing_posterior(
    Kuu: np.ndarray, q_mu: np.ndarray, q_sqrt: np.ndarray, whiten: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Mean [M] and covariance [M, M] of q(u) of one latent GP; `q_sqrt` is a [M, M] factor or [M] deviations."""
    root = np.diag(q_sqrt) if q_sqrt.ndim == 1 else np.tril(q_sqrt)
    if whiten:
        L = np.linalg.cholesky(Kuu)
        return L @ q_mu, L @ root @ root.T @ L.T
    return q_mu, root @ root.T


def conditional(
    Kuu: np.ndarray, Kuf: np.ndarray, Kff: np.ndarray, m: np.ndarray, S: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean [N] and covariance [N, N] of f given u ~ N(m, S)."""
    A = np.linalg.solve(Kuu, Kuf)
    return A.T @ m, Kff - A.T @ (Kuu - S) @ A


def gauss_kl(Kuu: np.ndarray, m: np.ndarray, S: np.ndarray) -> float:
    """KL[N(m, S) || N(0, Kuu)] in nats."""
    inverse = np.linalg.inv(Kuu)
    log_dets = np.linalg.slogdet(Kuu)[1] - np.linalg.slogdet(S)[1]
    return 0.5 * (np.trace(inverse @ S) + m @ inverse @ m - len(m) + log_dets)


class Layer:
    """A layer with squared-exponential kernels, read off an `SVGPLayer`: one kernel and Z for each latent GP."""

    def __init__(self, layer: object) -> None:
        self.whiten, self.q_diag = layer.whiten, layer.q_diag  # type: ignore[attr-defined]
        self.q_mu, self.q_sqrt = layer.q_mu.numpy(), layer.q_sqrt.numpy()  # type: ignore[attr-defined]
        self.noise = 0.0 if layer.noise_variance is None else float(layer.noise_variance.numpy())  # type: ignore[attr-defined]
        self.mean_function = layer.mean_function  # type: ignore[attr-defined]
        self.propagated = layer.input_propagation  # type: ignore[attr-defined]
        kernel, inducing, P = layer.kernel, layer.inducing_variable, layer.num_latent_gps  # type: ignore[attr-defined]
        kernels = list(getattr(kernel, "latent_kernels", [kernel]))
        inducing = list(getattr(inducing, "inducing_variables", [inducing]))
        self.parts = [(kernels[p % len(kernels)], inducing[p % len(inducing)].Z.numpy()) for p in range(P)]

    def _kernel(self, p: int, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        kernel, _ = self.parts[p]
        return rbf(X, Y, kernel.variance.numpy(), kernel.lengthscales.numpy())

    def Kuu(self, p: int) -> np.ndarray:
        Z = self.parts[p][1]
        return self._kernel(p, Z, Z) + (self.noise + JITTER) * np.eye(len(Z))

    def inducing_posterior(self, p: int) -> tuple[np.ndarray, np.ndarray]:
        q_sqrt = self.q_sqrt[:, p] if self.q_diag else self.q_sqrt[p]
        return inducing_posterior(self.Kuu(p), self.q_mu[:, p], q_sqrt, self.whiten)

    def latent(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means [N, P] and joint covariances [P, N, N] without the mean function."""
        means, covs = [], []
        for p, (_, Z) in enumerate(self.parts):
            Kff = self._kernel(p, X, X) + self.noise * np.eye(len(X))
            mean, cov = conditional(self.Kuu(p), self._kernel(p, Z, X), Kff, *self.inducing_posterior(p))
            means.append(mean)
            covs.append(cov)
        return np.stack(means, axis=-1), np.stack(covs)

    def marginals(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances [N, propagated + P] of the outputs."""
        mean, cov = self.latent(X)
        var = np.diagonal(cov, axis1=1, axis2=2).T
        mean = mean + np.asarray(self.mean_function(X))
        kept = X[:, : self.propagated]
        return np.concatenate([kept, mean], axis=1), np.concatenate([np.zeros_like(kept), var], axis=1)

    def draw(self, X: np.ndarray, eps: np.ndarray) -> np.ndarray:
        """Outputs [N, propagated + P] at X [N, D] from noise [N, P], independently at every point."""
        mean, cov = self.latent(X)
        root = np.sqrt(np.diagonal(cov, axis1=1, axis2=2).T)
        f = mean + root * eps + np.asarray(self.mean_function(X))
        return np.concatenate([X[:, : self.propagated], f], axis=1)

    def prior_kl(self) -> float:
        return sum(gauss_kl(self.Kuu(p), *self.inducing_posterior(p)) for p in range(len(self.parts)))


def components(layers: list[Layer], X: np.ndarray, noise: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances [S, N, P] of the last layer given draws [S, N, P_l] of the inner ones."""
    S = len(noise[0]) if noise else 1
    results = []
    for s in range(S):
        F = X
        for layer, eps in zip(layers[:-1], noise, strict=True):
            F = layer.draw(F, eps[s])
        results.append(layers[-1].marginals(F))
    return np.stack([mean for mean, _ in results]), np.stack([var for _, var in results])


def gaussian_elbo(
    layers: list[Layer], X: np.ndarray, Y: np.ndarray, noise: list[np.ndarray], variance: float, num_data: int
) -> float:
    """Bound with a Gaussian likelihood, in nats: Eq. (17), averaged over the draws in `noise`."""
    means, variances = components(layers, X, noise)
    per_point = -0.5 * np.log(2 * np.pi * variance) - 0.5 * ((Y - means) ** 2 + variances) / variance
    expected = np.mean(np.sum(per_point, axis=(1, 2)))
    return float(expected * num_data / len(X) - sum(layer.prior_kl() for layer in layers))


def log_mean_exp(values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """log sum_s weights[s] exp(values[s]); weights 1/S if None."""
    weights = np.full(len(values), 1.0 / len(values)) if weights is None else weights
    top = np.max(values, axis=0)
    return top + np.log(np.tensordot(weights, np.exp(values - top), axes=1))


def mixture(
    means: np.ndarray, covs: np.ndarray, weights: np.ndarray, full_cov: bool, full_output_cov: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Mean [N, P] and covariance of the mixture with components means [S, N, P], covs [S, ...], as second moments."""
    mean = np.einsum("s,snp->np", weights, means)
    second = np.einsum("s,s...->...", weights, covs)
    for s in range(len(means)):
        if full_cov and full_output_cov:
            second = second + weights[s] * np.einsum("np,mq->npmq", means[s], means[s])
        elif full_cov:
            second = second + weights[s] * np.einsum("np,mp->pnm", means[s], means[s])
        elif full_output_cov:
            second = second + weights[s] * np.einsum("np,nq->npq", means[s], means[s])
        else:
            second = second + weights[s] * means[s] ** 2
    outer = {
        (False, False): "np,np->np",
        (True, False): "np,mp->pnm",
        (False, True): "np,nq->npq",
        (True, True): "np,mq->npmq",
    }
    return mean, second - np.einsum(outer[full_cov, full_output_cov], mean, mean)

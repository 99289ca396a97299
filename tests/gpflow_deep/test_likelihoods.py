"""Every GPflow likelihood over S components equals GPflow's own likelihood in a loop over the components."""

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Gaussian,
    GaussianMC,
    HeteroskedasticTFPConditional,
    Likelihood,
    MonteCarloLikelihood,
    MultiClass,
    Ordinal,
    Poisson,
    Softmax,
    StudentT,
    SwitchedLikelihood,
)
from scipy.special import erf

from gpflow_deep.model import likelihoods
from tests.gpflow_deep import oracles
from tests.gpflow_deep.builders import make_model, standard_noise

N, D = 6, 2
RTOL = 1e-8  # the same float64 formulas in another order
BIN_EDGES = np.array([-1.0, 0.2, 1.1])


def varying_noise() -> Gaussian:
    scale = gpflow.functions.Linear(A=np.array([[0.1], [0.2]]), b=np.array([1.0]))
    return Gaussian(scale=scale)


def ordinal() -> Ordinal:
    likelihood = Ordinal(BIN_EDGES)
    likelihood.sigma.assign(0.8)
    return likelihood


def switched() -> SwitchedLikelihood:
    return SwitchedLikelihood([Gaussian(variance=0.1), Gaussian(variance=0.7)])


def switched_with_ordinal() -> SwitchedLikelihood:
    return SwitchedLikelihood([Gaussian(variance=0.1), Ordinal(BIN_EDGES)])


def heteroskedastic() -> HeteroskedasticTFPConditional:
    return HeteroskedasticTFPConditional(
        distribution_class=tfp.distributions.Normal, scale_transform=tfp.bijectors.Exp()
    )


#: name -> (likelihood, number of latent functions P, targets from a generator)
CASES: dict[str, tuple[Callable[[], Likelihood], int, Callable[[np.random.Generator], np.ndarray]]] = {
    "gaussian": (lambda: Gaussian(variance=0.3), 2, lambda rng: rng.standard_normal((N, 2))),
    "gaussian with varying noise": (varying_noise, 1, lambda rng: rng.standard_normal((N, 1))),
    "student": (lambda: StudentT(scale=0.5, df=4.0), 2, lambda rng: rng.standard_normal((N, 2))),
    "bernoulli": (Bernoulli, 1, lambda rng: rng.integers(0, 2, (N, 1)).astype(float)),
    "poisson": (Poisson, 1, lambda rng: rng.poisson(2.0, (N, 1)).astype(float)),
    "exponential": (Exponential, 1, lambda rng: rng.exponential(1.0, (N, 1))),
    "gamma": (lambda: Gamma(shape=2.0), 1, lambda rng: rng.gamma(2.0, 1.0, (N, 1))),
    "beta": (lambda: Beta(scale=3.0), 1, lambda rng: rng.uniform(0.1, 0.9, (N, 1))),
    "robust max": (lambda: MultiClass(3), 3, lambda rng: rng.integers(0, 3, (N, 1)).astype(float)),
    "softmax": (lambda: Softmax(3), 3, lambda rng: rng.integers(0, 3, (N, 1)).astype(float)),
    "gaussian by Monte Carlo": (lambda: GaussianMC(variance=0.3), 1, lambda rng: rng.standard_normal((N, 1))),
    "ordinal": (ordinal, 1, lambda rng: rng.integers(0, 4, (N, 1)).astype(float)),
    "switched": (
        switched,
        1,
        lambda rng: np.concatenate([rng.standard_normal((N, 1)), rng.permutation(np.arange(N) % 2)[:, None]], axis=1),
    ),
    "switched with ordinal": (
        switched_with_ordinal,
        1,
        lambda rng: np.concatenate([rng.integers(0, 4, (N, 1)), (np.arange(N) % 2)[:, None]], axis=1).astype(float),
    ),
    "heteroskedastic": (heteroskedastic, 2, lambda rng: rng.standard_normal((N, 1))),
}


# An ordinal likelihood in NumPy: GPflow's own is NaN in its outer bins on some processors.


def ordinal_probabilities(f: np.ndarray, sigma: float) -> np.ndarray:
    """p(y = k | f) for k = 0, ..., 3 with GPflow's 1e-3 away from 0 and 1: [..., 4]."""
    edges = np.concatenate([[-np.inf], BIN_EDGES, [np.inf]])
    below = 0.5 * (1 + erf((edges - f[..., None]) / sigma / np.sqrt(2))) * (1 - 2e-3) + 1e-3
    return below[..., 1:] - below[..., :-1]


class NumpyOrdinal:
    """20-point Gauss-Hermite integrals, as GPflow's scalar likelihoods have them, over [N, 1] moments."""

    def __init__(self, sigma: float) -> None:
        self.sigma = sigma

    def _integral(self, function: Callable[[np.ndarray], np.ndarray], f_mean: Any, f_var: Any) -> np.ndarray:
        nodes, weights = np.polynomial.hermite_e.hermegauss(20)
        f = np.asarray(f_mean)[:, 0, None] + np.sqrt(np.asarray(f_var)[:, 0, None]) * nodes
        return np.einsum("k,nk...->n...", weights / weights.sum(), function(f))

    def _log_prob(self, f: np.ndarray, Y: np.ndarray) -> np.ndarray:
        chosen = np.take_along_axis(
            ordinal_probabilities(f, self.sigma), Y.astype(int)[:, None, :].repeat(20, axis=1), axis=-1
        )
        return np.log(chosen[..., 0] + 1e-6)

    def variational_expectations(self, X: Any, f_mean: Any, f_var: Any, Y: np.ndarray) -> np.ndarray:
        return self._integral(lambda f: self._log_prob(f, Y), f_mean, f_var)

    def predict_log_density(self, X: Any, f_mean: Any, f_var: Any, Y: np.ndarray) -> np.ndarray:
        return np.log(self._integral(lambda f: np.exp(self._log_prob(f, Y)), f_mean, f_var))

    def predict_mean_and_var(self, X: Any, f_mean: Any, f_var: Any) -> tuple[np.ndarray, np.ndarray]:
        p = self._integral(lambda f: ordinal_probabilities(f, self.sigma), f_mean, f_var)
        labels = np.arange(4)
        mean = p @ labels
        return mean[:, None], (p @ labels**2 - mean**2)[:, None]


class NumpySwitchedWithOrdinal:
    def __init__(self, likelihood: SwitchedLikelihood) -> None:
        self.parts: list[Any] = [
            likelihood.likelihoods[0],
            NumpyOrdinal(float(likelihood.likelihoods[1].sigma.numpy())),
        ]

    def _chosen(self, method: str, X: Any, f_mean: Any, f_var: Any, Y: np.ndarray) -> np.ndarray:
        first, second = (np.asarray(getattr(part, method)(X, f_mean, f_var, Y[:, :1])) for part in self.parts)
        return np.where(Y[:, 1] == 0, first, second)

    def variational_expectations(self, X: Any, f_mean: Any, f_var: Any, Y: np.ndarray) -> np.ndarray:
        return self._chosen("variational_expectations", X, f_mean, f_var, Y)

    def predict_log_density(self, X: Any, f_mean: Any, f_var: Any, Y: np.ndarray) -> np.ndarray:
        return self._chosen("predict_log_density", X, f_mean, f_var, Y)

    def predict_mean_and_var(self, X: Any, f_mean: Any, f_var: Any) -> tuple[np.ndarray, np.ndarray]:
        moments = [part.predict_mean_and_var(X, f_mean, f_var) for part in self.parts]
        mean, var = (np.concatenate([np.asarray(m[i]) for m in moments], axis=1) for i in (0, 1))
        return mean, var


class WithNoise:
    """A Monte-Carlo likelihood of GPflow that draws its noise for component s from a fixed array [K, S N, P]."""

    def __init__(self, likelihood: MonteCarloLikelihood, epsilon: np.ndarray) -> None:
        self.likelihood, self.epsilon, self.s = likelihood, epsilon, 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(X: Any, *arguments: Any) -> Any:
            if isinstance(self.likelihood, Softmax) and len(arguments) == 3:
                arguments = (*arguments[:2], arguments[2].astype(int))
            epsilon = tf.constant(self.epsilon[:, self.s * N : (self.s + 1) * N])
            return getattr(self.likelihood, f"_{name}")(X, *arguments, epsilon=epsilon)

        return call


def reference(likelihood: Likelihood, epsilon: np.ndarray) -> Any:
    if isinstance(likelihood, Ordinal):
        return NumpyOrdinal(float(likelihood.sigma.numpy()))
    if isinstance(likelihood, SwitchedLikelihood) and isinstance(likelihood.likelihoods[-1], Ordinal):
        return NumpySwitchedWithOrdinal(likelihood)
    return WithNoise(likelihood, epsilon) if isinstance(likelihood, MonteCarloLikelihood) else likelihood


@pytest.mark.parametrize("S", [1, 5])
@pytest.mark.parametrize("name", CASES)
def test_all_methods_equal_a_loop(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, name: str, S: int) -> None:
    build, P, targets = CASES[name]
    likelihood = build()
    X, Y = rng.uniform(-1, 1, (N, D)), targets(rng)
    model = make_model(rng, (D, 2, P), likelihood, num_data=30, num_predict_samples=S)
    epsilon = rng.standard_normal((100, S * N, P))
    for name_of_draws in ("_independent", "_shared"):  # in the bound, in predictions
        monkeypatch.setattr(likelihoods, name_of_draws, lambda *_: tf.constant(epsilon))
    loop = reference(likelihood, epsilon)

    def over_components(method: str, means: Any, variances: Any, *targets: np.ndarray) -> list[Any]:
        results = []
        for s in range(S):
            loop.__dict__["s"] = s  # for the noise of a Monte-Carlo likelihood
            results.append(getattr(loop, method)(X, means[s], variances[s], *targets))
        return results

    noise = standard_noise(rng, model, S, N)
    result = model.propagate(X, noise)
    expectations = over_components("variational_expectations", result.means[-1], result.covs[-1], Y)
    expected = np.sum(np.mean(expectations, axis=0)) * 30 / N - model.prior_kl()
    np.testing.assert_allclose(model.elbo((X, Y), noise=noise), expected, rtol=RTOL)

    means, variances = model.predict_components(X)
    densities = np.array(over_components("predict_log_density", means, variances, Y))
    assert np.all(np.isfinite(densities))
    np.testing.assert_allclose(model.predict_log_density((X, Y)), oracles.log_mean_exp(densities), rtol=RTOL, atol=1e-9)
    moments = over_components("predict_mean_and_var", means, variances)
    y_means, y_variances = (np.array([np.asarray(part[i]) for part in moments]) for i in (0, 1))
    expected_mean, expected_var = oracles.mixture(y_means, y_variances, np.full(S, 1 / S), False, False)
    mean, var = model.predict_y(X)
    np.testing.assert_allclose(mean, expected_mean, rtol=RTOL, atol=1e-10)
    np.testing.assert_allclose(var, expected_var, rtol=RTOL, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_finite(rng: np.random.Generator, name: str) -> None:
    """And none is missing: every parameter of layers and likelihood is in the bound."""
    build, P, targets = CASES[name]
    model = make_model(rng, (D, 2, P), build(), num_samples=2)
    data = (rng.uniform(-1, 1, (N, D)), targets(rng))
    with tf.GradientTape() as tape:
        loss = model.training_loss(data, seed=1)
    gradients = tape.gradient(loss, model.trainable_variables)
    assert np.isfinite(loss)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, f"{variable.name} has no gradient"
        assert np.all(np.isfinite(gradient)), f"the gradient of {variable.name} is not finite"


def test_ordinal_far_tails_have_a_gradient(rng: np.random.Generator) -> None:
    """Where a label is very unlikely, GPflow's floor of 1e-3 and 1e-6 keeps log p and its gradient finite."""
    likelihood = Ordinal(BIN_EDGES)
    f_mean = tf.Variable(np.linspace(-30, 30, 2 * N).reshape(2, N, 1))
    Y = (np.arange(N) % 4).astype(float)[:, None]
    with tf.GradientTape() as tape:
        value = likelihoods.variational_expectations(
            likelihood, np.zeros((N, D)), f_mean, tf.ones_like(f_mean), Y, tf.constant([0, 0])
        )
    gradients = tape.gradient(value, [f_mean, likelihood.sigma.unconstrained_variable])
    assert all(np.all(np.isfinite(gradient)) for gradient in (value, *gradients))


def test_repair_leaves_the_likelihood_as_it_is(rng: np.random.Generator) -> None:
    """The view with finite bins shares the parameters and is not stored anywhere."""
    likelihood = switched_with_ordinal()
    model = make_model(rng, (D, 2, 1), likelihood)
    before = gpflow.utilities.parameter_dict(model).keys()
    parts = list(likelihood.likelihoods)
    data = (rng.uniform(-1, 1, (N, D)), CASES["switched with ordinal"][2](rng))
    first = float(model.elbo(data, seed=0))
    assert type(likelihood.likelihoods[1]) is Ordinal
    assert all(a is b for a, b in zip(parts, likelihood.likelihoods, strict=True))
    assert gpflow.utilities.parameter_dict(model).keys() == before
    likelihood.likelihoods[1].sigma.assign(2.0)
    assert float(model.elbo(data, seed=0)) != first


def switched_monte_carlo() -> SwitchedLikelihood:
    return SwitchedLikelihood([GaussianMC(variance=0.1), GaussianMC(variance=0.7)])


@pytest.mark.parametrize(("name", "build"), [("softmax", lambda: Softmax(3)), ("switched", switched_monte_carlo)])
def test_monte_carlo_likelihoods_follow_the_seed(rng: np.random.Generator, name: str, build: Any) -> None:
    """Also as members of a switched one, which GPflow would integrate with global random numbers."""
    _, P, targets = CASES[name]
    model = make_model(rng, (D, P), build())
    X, Y = rng.uniform(-1, 1, (N, D)), targets(rng)
    first, again, other = (float(model.elbo((X, Y), seed=s)) for s in (1, 1, 2))
    assert first == again != other
    np.testing.assert_array_equal(model.predict_y(X)[0], model.predict_y(X)[0])
    assert np.any(model.predict_y(X)[1] != model.predict_y(X, seed=1)[1])


@pytest.mark.parametrize("name", ["softmax", "gaussian by Monte Carlo", "switched"])
def test_predictions_of_likelihoods_do_not_depend_on_the_position(rng: np.random.Generator, name: str) -> None:
    """Also where GPflow draws: the same points for every row. Rounding only."""
    build, P, targets = CASES[name]
    build = switched_monte_carlo if name == "switched" else build
    model = make_model(rng, (D, 2, P), build(), num_predict_samples=4)
    X, Y = rng.uniform(-1, 1, (N, D)), targets(rng)
    order = rng.permutation(N)
    for a, b in zip(model.predict_y(X[order]), model.predict_y(X), strict=True):
        np.testing.assert_allclose(a, np.asarray(b)[order], rtol=1e-11)
    densities = model.predict_log_density((X, Y)).numpy()
    np.testing.assert_allclose(model.predict_log_density((X[order], Y[order])), densities[order], rtol=1e-11)
    np.testing.assert_allclose(model.predict_log_density((X[:1], Y[:1])), densities[:1], rtol=1e-11)


def test_softmax_probabilities(rng: np.random.Generator) -> None:
    """Plain NumPy with 20,000 draws: within 5 standard errors, of which sqrt(2) allows for the error of 4096 points."""
    likelihood = Softmax(3)
    likelihood.num_monte_carlo_points = 4096
    f_mean, f_var = rng.standard_normal((2, N, 3)), rng.uniform(0.1, 1.0, (2, N, 3))
    seed = tf.constant([1, 2])
    mean, _ = likelihoods.predict_mean_and_var(likelihood, np.zeros((N, D)), f_mean, f_var, seed)
    f = f_mean + np.sqrt(f_var) * rng.standard_normal((20_000, 2, N, 3))
    p = np.exp(f) / np.sum(np.exp(f), axis=-1, keepdims=True)
    standard_error = np.sqrt(2.0) * np.std(p, axis=0) / np.sqrt(20_000)
    assert np.all(np.abs(mean - np.mean(p, axis=0)) < 5 * standard_error)
    assert np.max(5 * standard_error) < 0.02

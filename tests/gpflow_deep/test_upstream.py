"""The private names of GPflow and TensorFlow that are used are those in `upstream`, and are as it takes them."""

import ast
import inspect
from pathlib import Path
from unittest import mock

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import (
    GaussianMC,
    HeteroskedasticTFPConditional,
    MonteCarloLikelihood,
    Ordinal,
    Softmax,
    SwitchedLikelihood,
)

import gpflow_deep
from gpflow_deep.model.upstream import (
    TRACKING_PREFIX,
    DenseSoftmax,
    FiniteOrdinal,
    distribution_class,
    mark_copies,
    repaired,
)

SOURCES = sorted(Path(gpflow_deep.__file__).parent.rglob("*.py"))
OWN = {"self", "cls"}
#: What named tuples have is public.
NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}


def private_names(source: str) -> list[str]:
    """Private attributes of what is not `self`, and imports of private modules of TensorFlow."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            if not (isinstance(node.value, ast.Name) and node.value.id in OWN) and node.attr not in NAMED_TUPLE:
                found.append(node.attr)
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith(("tensorflow.python", "keras.src")):
            found.append(str(node.module))
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_private_names_are_in_one_place(path: Path) -> None:
    found = private_names(path.read_text(encoding="utf-8"))
    assert set(found) == ({"_initialize", "_mc_quadrature", "_trainable"} if path.stem == "upstream" else set())


@pytest.mark.parametrize("source", ["x._y", "f(x)._y()", "from tensorflow.python.data import z"])
def test_the_check_finds_private_names(source: str) -> None:
    assert len(private_names(source)) == 1


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_quadrature_of_monte_carlo_likelihoods() -> None:
    """Its arguments; that all three integrals of such a likelihood go through it; and that noise can be handed in."""
    expected = ["self", "funcs", "Fmu", "Fvar", "logspace", "epsilon", "Ys"]
    assert parameters(MonteCarloLikelihood._mc_quadrature) == expected
    likelihood, calls = GaussianMC(), []

    def noise(num_draws: int, means: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        calls.append(num_draws)
        return tf.zeros([num_draws, 1, 1], tf.float64)

    view = repaired(likelihood, tf.constant([1, 2]), noise)
    X, F, var, Y = np.zeros((3, 1)), np.ones((3, 1)), np.full((3, 1), 4.0), np.zeros((3, 1))
    np.testing.assert_allclose(view.predict_mean_and_var(X, F, var)[0], F)  # at the mean, as the noise is 0
    np.testing.assert_allclose(view.predict_log_density(X, F, var, Y), likelihood.log_prob(X, F, Y))
    np.testing.assert_allclose(view.variational_expectations(X, F, var, Y), likelihood.log_prob(X, F, Y))
    assert calls == [100, 100, 100]


def test_ordinal() -> None:
    """The two methods that are replaced exist, and agree with GPflow's in the inner bin, where nothing is infinite."""
    assert parameters(Ordinal._scalar_log_prob) == parameters(FiniteOrdinal._scalar_log_prob) == ["self", "X", "F", "Y"]
    assert parameters(Ordinal._make_phi) == parameters(FiniteOrdinal._make_phi) == ["self", "F"]
    ours, theirs = FiniteOrdinal(np.array([-0.5, 1.0])), Ordinal(np.array([-0.5, 1.0]))
    F = np.linspace(-2, 2, 5)[:, None]
    args = (np.zeros((5, 1)), F, np.ones((5, 1)))
    np.testing.assert_allclose(ours.log_prob(*args), theirs.log_prob(*args), rtol=1e-12)
    np.testing.assert_allclose(ours._make_phi(F)[:, 1], theirs._make_phi(F)[:, 1], rtol=1e-12)
    np.testing.assert_allclose(np.sum(ours._make_phi(F), axis=1), 1 - 2e-3, rtol=1e-12)


def test_softmax(rng: np.random.Generator) -> None:
    """Where there is a GPU another cross-entropy of the same values and gradients is used, for GPflow's own class."""
    F, Y = tf.constant(rng.normal(size=(20, 5))), tf.constant(rng.integers(0, 5, (20, 1)))
    results = []
    for likelihood in (Softmax(5), DenseSoftmax(5)):
        with tf.GradientTape() as tape:
            tape.watch(F)
            value = likelihood.log_prob(tf.zeros([20, 1]), F, Y)
        results.append((value, tape.gradient(value, F)))
    for ours, theirs in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)  # sums of five in float64
    assert np.isnan(DenseSoftmax(5).log_prob(tf.zeros([1, 1]), F[:1], tf.constant([[5]])))
    seed, noise = tf.constant([1, 2]), lambda *_: tf.zeros([100, 1, 5], tf.float64)
    for gpus, expected in (([], Softmax), (["GPU"], DenseSoftmax)):
        with mock.patch.object(tf.config, "list_logical_devices", return_value=gpus):
            assert type(repaired(Softmax(5), seed, noise)) is expected


def test_parts_of_a_switched_likelihood_are_public() -> None:
    """A view's parts are used in place of the original's."""
    likelihood = SwitchedLikelihood([GaussianMC(), Ordinal(np.array([0.0]))])
    view = repaired(likelihood, tf.constant([1, 2]), lambda *_: tf.zeros([100, 1, 1], tf.float64))
    assert [type(part) for part in view.likelihoods] == [GaussianMC, FiniteOrdinal]
    assert [type(part) for part in likelihood.likelihoods] == [GaussianMC, Ordinal]


def test_distribution_class_of_heteroskedastic_likelihoods() -> None:
    likelihood = HeteroskedasticTFPConditional(tfp.distributions.Laplace)
    assert distribution_class(likelihood) is tfp.distributions.Laplace
    likelihood.conditional_distribution = tf.exp
    assert distribution_class(likelihood) is None


def test_prefix_of_the_attributes_that_track_others() -> None:
    """Of a module with a variable and a list; a checkpoint that is restored may add to them."""
    module = tf.Module()
    before = set(vars(module))
    module.variable, module.parts = tf.Variable(1.0), [tf.Variable(2.0)]
    added = set(vars(module)) - before - {"variable", "parts"}
    assert added
    assert all(name.startswith(TRACKING_PREFIX) for name in added)


def test_trainable_flag_of_variables() -> None:
    """GPflow marks a variable by `_trainable`, which TensorFlow reads; ordinary variables need nothing further."""
    module = tf.Module()
    module.variable = tf.Variable(1.0)
    gpflow.set_trainable(module, False)
    assert vars(module.variable)["_trainable"] is False
    assert not module.trainable_variables
    mark_copies(module)

"""What is said about the state of every layer."""

from typing import Any

import gpflow
import numpy as np

from gpflow_deep import diagnose
from tests.gpflow_deep import oracles
from tests.gpflow_deep.builders import make_model


def test_diagnostics(rng: np.random.Generator) -> None:
    model = make_model(rng, (2, 2, 1), layer_options={"noise_variance": 0.02})
    reports: Any = diagnose(model)
    assert [report.label for report in reports] == ["layer 1 of 2", "layer 2 of 2"]
    for report, layer in zip(reports, model.layers, strict=True):
        oracle = oracles.Layer(layer)
        np.testing.assert_allclose(report.kl_nats, oracle.prior_kl(), rtol=1e-9)
        np.testing.assert_allclose(report.condition_number, np.linalg.cond(oracle.Kuu(0)), rtol=1e-8)
        np.testing.assert_allclose(report.jitter, 1e-6, rtol=1e-6)  # a difference of numbers of order 1
        np.testing.assert_array_equal(report.lengthscales, layer.kernel.lengthscales)
        np.testing.assert_array_equal(report.kernel_variances, [layer.kernel.variance.numpy()])
        np.testing.assert_allclose(report.noise_variance, 0.02, rtol=1e-12)


def test_diagnostics_of_other_kernels(rng: np.random.Generator) -> None:
    kernel = gpflow.kernels.SeparateIndependent(
        [gpflow.kernels.Matern52(lengthscales=2.0), gpflow.kernels.Linear(variance=3.0)]
    )
    Z = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(rng.standard_normal((2, 2)))
    )
    model = make_model(rng, (2, 2), layer_options={"kernel": kernel, "Z": Z}, M=2)
    (report,) = diagnose(model)
    np.testing.assert_allclose(report.lengthscales, [2.0])
    np.testing.assert_allclose(report.kernel_variances, [1.0, 3.0])
    assert report.noise_variance == 0.0


def test_diagnostics_show_raised_jitter() -> None:
    """Inducing inputs on top of one another, and an indefinite kernel matrix by rounding at variance 1e12."""
    model = make_model(
        np.random.default_rng(0),
        (1, 1),
        layer_options={
            "kernel": gpflow.kernels.SquaredExponential(variance=1e12, lengthscales=1.0),
            "Z": np.repeat(np.linspace(0, 1, 3), 10)[:, None],
        },
        M=30,
    )
    report: Any = diagnose(model)[0]
    assert report.jitter > 1e-5

"""Expectation backpropagation: learning-rate-free Bayesian training of multilayer networks (Soudry et al. 2014)."""

import gpflow_deep_base  # noqa: F401  TensorFlow starts without noise
from gpflow_deep_base.doors import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

"""Trained models in use.

report, pages     what is told of a model, in words and as a page of its own
design, trieste   where to evaluate next: for simulators, and for Bayesian optimisation
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

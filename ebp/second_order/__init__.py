"""Posteriors whose updates have a term of second order, which the paper leaves out.

second_order    means and variances of all weights by both derivatives
joint           the same with all covariances
noise           targets with Gaussian noise of unknown variance
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

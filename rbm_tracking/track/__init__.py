"""Tracking log Z while an RBM learns: Sections 3 and 4.

tempering, ladder             Eq. (2): swaps, block Gibbs; adaptive temperatures (SML-APT)
filtering, tracking           Eqs. (3), (4): change of log Z, bridges; Figures 1, 2: the filter, and one update of it
partition_tracker             the filter for parameters and samples from anywhere, with NumPy alone
updates, state, settings      SML-PT: gradients, learning rates, small models in NumPy (plain_tempering)
evidence                      what the filter says of itself; one interval and one verdict
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

"""The updates of SML: Sections 2 and 3.

gradient         of the log-likelihood, by particles
learning         one update after the other, in a graph
plain_updates    the same by NumPy, for small models
schedules        learning rates
target           what the chains run at
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

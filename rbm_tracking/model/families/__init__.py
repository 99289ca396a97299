"""Units other than zeros and ones, each a family of `visible`.

softmax, rectified, mixed    units of several values, not below zero, of several kinds
groups                       units of one kind side by side
exact_families               log Z of them by enumeration
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

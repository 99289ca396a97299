"""What estimators do to rows before a network sees them.

decorrelation    inputs without correlations
far_values       slips of the pen among the inputs
row_order        fits that do not depend on the order of a file
seen_columns     columns that never occur cost nothing
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

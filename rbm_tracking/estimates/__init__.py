"""Annealed importance sampling, to check the filter (footnote 5).

ais, annealing         AIS and reverse AIS along temperatures (sparse_kernels, sparse_rows)
strata                 AIS from each cluster of the rows, and from modes that they do not lead to (maxima)
trajectories           along the parameters of a run (trajectory_tempering)
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

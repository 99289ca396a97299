"""A model chosen by its rows: kernel, inducing inputs, depth, likelihood and posterior.

selection        the candidates, and how they are compared
single_layer     the exact and the sparse GP that come first, by NumPy
imputation       two layers whose inner outputs are drawn, for rows without noise
choice           what was tried, and what is free
stored_choice    the same in a folder, for whoever trains on
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

"""Bayesian compression: networks that learn which units they need and at which precision (Louizos et al. 2017).

Eqs. (5)-(20), (29)-(37), Algorithms 1-4  layers/ of either prior
Figs. 4-7                                 graph/: units that may go, and the network without them
Secs. 4.1, 5, 5.2, App. B                 rounding/; train/, of networks for MNIST, too

files/, which numpy_reader reads with NumPy alone (numpy_draws); report: what is told of them.
"""

import lazy_loader

import gpflow_deep_base  # noqa: F401  TensorFlow starts without noise

# Names are imported from where __init__.pyi says when they are used, so that a part needs no more than it imports.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

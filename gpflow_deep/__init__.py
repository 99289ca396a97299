"""Doubly stochastic deep Gaussian processes as GPflow models (Salimbeni & Deisenroth 2017).

`gpflow_deep.keras`, layers for Keras models, is imported when it is first used.
"""

import lazy_loader

import gpflow_deep_base  # noqa: F401  TensorFlow starts without noise

__version__ = "0.2.0"

# Names are imported from where __init__.pyi says when they are used, so that a part needs no more than it imports.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ = [name for name in __all__ if name != "keras"]  # a star does not import it

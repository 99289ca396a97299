"""Deep autoregressive networks (Gregor, Danihelka, Mnih, Blundell and Wierstra, 2014)."""

import lazy_loader

import gpflow_deep_base  # noqa: F401  TensorFlow starts without noise

# Names are imported from where __init__.pyi says when they are used, so that a part needs no more than it imports.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

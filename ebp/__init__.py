"""Expectation backpropagation: learning-rate-free Bayesian training of multilayer networks (Soudry et al. 2014)."""

import gpflow_deep_base  # noqa: F401  TensorFlow starts without noise

try:
    import lazy_loader
except ImportError:  # `ebp.packed.packed` and `python -m ebp` need NumPy alone; they are imported by name
    pass
else:
    # Names are imported from where __init__.pyi says when they are used, so that a part needs no more than it imports.
    __getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

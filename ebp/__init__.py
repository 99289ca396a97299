"""Expectation backpropagation: learning-rate-free Bayesian training of multilayer networks (Soudry et al. 2014).

Secs. 3, 4, App. B, D: network/, in the paper's order, and whole passes over rows in training/. Beyond it: second_order/
terms of the update, scikit-learn's estimators/, and packed/ weights of one bit in files and in C.
"""

from gpflow_deep_base.doors import attach_stub
from gpflow_deep_base.runtime.tensor_float import full_float32  # with that TensorFlow starts without noise, too

full_float32()

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

"""Draws of functions through all layers (Wilson et al., 2020), and where they are largest.

functions    draws as functions of the inputs
pathwise     Matheron's rule for one layer
spectral     features of stationary kernels
white_noise  noise that is a function of the input
optimize     Thompson sampling
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(
    __name__, submod_attrs={"functions": ["NUM_FEATURES", "AtPoints", "FunctionDraws", "draw_functions"]}
)

"""Minimal random codes (Havasi et al., 2018).

miracle           a network trained so that its weights can be drawn
random_coding     which draw it is, as bytes
random_numbers    the draws, the same on every machine
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

"""Section 4.1, Appendix B: at which precision weights are kept.

bits, rates        bits of a layer; the three rates of Table 2
codebook           Section 5.2 (iii): shared values
rate_rounding      rounding by rate and posterior variance
curvature, surgeon rounding by rate and what the outputs feel of it; all layers in turn: in_turn
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

"""Training in phases that can be resumed.

recipe, phases, last_phase    the phases, one after the other
classification, regression    what they learn from
likelihood                    noise of numbers
budget                        how much may be left
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

"""Units that go, and arrays without them.

flow, demand    which channels vary and are needed
shrink          the smaller network
cutting, carry  arrays, and the optimizer's, without what went
neighbours, ordering    numbers and orders of weights
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

"""Rows that come one after the other.

continual, memory, recency    streams of classes
one_by_one                    rows as dictionaries, as river has them
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

"""Whole passes over rows, in one graph.

training    passes over all rows, over a chunk, over a stream
loops       the passes of mean-field EBP, Eqs. (4.1)-(4.5) a row or a batch at a time
online      a pass with a posterior of few values, row by row
prepared    rows as a pass takes them
passes      how many passes, by rows that are held back
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

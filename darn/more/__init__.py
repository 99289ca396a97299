"""Other conditionals, and what a trained model answers.

nade, made        NADE, EoNADE, MADE in one order or several
ordered           densities of columns in an order, some of which are one category
chain             sparse logistic regressions, one column after the other
masked            networks with one masked layer (MADE) in plain NumPy
mixture           means of several densities, and their files
blame             which value of an odd row is to blame
completion        missing bits given the others; gaps: where the columns stand in an order
distribution      the model as a TensorFlow Probability distribution
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

"""Other conditionals, and what a trained model answers.

nade, made        NADE, EoNADE, MADE in one order or several
chain             sparse logistic regressions, one column after the other
mixture           means of several densities, and their files
completion        missing bits given the others
distribution      the model as a TensorFlow Probability distribution
gradient_moments  exact bias and variance of each gradient estimator
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submodules=["chain", "completion", "distribution", "gradient_moments", "made", "mixture", "nade"]
)

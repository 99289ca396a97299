"""What is predicted, judged: distribution functions of mixtures and scores of held-out rows.

predictive    quantiles, intervals and log densities of a mixture
conditionals  the distribution of a target given what a layer predicts
modes         where a predictive density has its modes
forecasts     predictions of several kinds of models behind one face
evaluation    calibration, coverage, sharpness
target_draws  draws of targets
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

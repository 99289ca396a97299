"""Training with the divergence, and cutting while training.

fitting, methods           a trained model in one call; by posteriors or by magnitudes
recipes, schedule          training in phases that can be resumed
engine, keras_training     the one loop of both: `keras.Model.fit`
callbacks                  for a loop of one's own
magnitude, sharing         other ways to make weights zero or equal
held_out                   rows that are held back
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

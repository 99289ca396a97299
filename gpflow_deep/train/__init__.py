"""From data to a trained model.

config, presets          which model; the appendix of the paper is `paper2017`
training, course         steps by Adam and natural gradients; how the learning rate falls,
                         and the weight of the KL of sigma points
fitting                  stopping rules, held-out rows
estimators               scikit-learn's interface
choosing                 kernel, inducing inputs, depth and likelihood, chosen by the rows
predictor                a trained model with the units of its data
sampled_training         a chain after training
images                   models of images
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

"""Posteriors of later papers in place of the Gaussian q(u) of each layer.

sampling, chain       samples of inducing outputs by SGHMC (Havasi et al., 2018); sampling_config, noise_search
ensemble              a posterior that is a set of samples
sigma_points          deep sigma point processes (Jankowiak et al., 2020)
importance            latent variables, importance-weighted bound (Salimbeni et al., 2019)
collapsed, noise      the best q(u) and the best noise of a last layer in closed form (Titsias, 2009)
diagnostics           what the layers do
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

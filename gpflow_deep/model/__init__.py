"""A deep Gaussian process and its bound (Salimbeni and Deisenroth, 2017).

deep_gp         the model; Eqs. (16), (17): `elbo`
bound           Eq. (17) for a minibatch
propagation     Eqs. (14), (15): draws through all layers
predictions     Eq. (18): what is predicted, a mixture over draws
quadrature      draws and nodes: Monte Carlo, Sobol, Gauss-Hermite (`deep_gp.DeepGPQuad`)
likelihoods     tasks, their likelihoods and scores; scaling: units of the data
initialization  Section 2.2: inducing inputs, linear mean functions
posterior       what is computed once for many predictions
upstream        what of GPflow has to be told of more than one layer
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

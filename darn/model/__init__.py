"""Deep autoregressive networks (Gregor et al., 2014), in the paper's order.

autoregressive      Eqs. (1), (2): triangular logistic regression, and draws from it
categories          bits that are one variable
model               Eqs. (3)-(10): encoder, decoder, prior (config, layers)
description_length  Eqs. (11)-(15); the likelihood, Eq. (16), and estimates of it
gradients           Section 4, Appendix A: the gradient through bits; fDARN's penalty
weight_noise        Section 5.2: adaptive weight noise and a model as a function of its weights
replicas            sums over several devices
serialization       files; shapes of all variables from the configuration
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(
    __name__, submod_attrs={"model": ["DARN", "DARNConfig", "Encoded", "Samples", "check_data"]}
)

"""Layers for images (Blomqvist et al., 2018; van der Wilk et al., 2017).

convolutional           a Gaussian process at all patches: an image of several channels
weighted_convolutional  weighted sums of Gaussian processes over the patches
patch_sums              covariances of such sums
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

"""Layers for images (Blomqvist et al., 2018; van der Wilk et al., 2017).

convolutional           a Gaussian process at all patches: an image of several channels
weighted_convolutional  weighted sums of Gaussian processes over the patches
patch_sums              covariances of such sums
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submodules=["convolutional", "patch_sums", "weighted_convolutional"]
)

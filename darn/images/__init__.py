"""Layers for images: Section 2.2, local connectivity with periodic weights; PixelCNN.

local      local layers; stochastic layers that are grids, Figure 5; pixels that see a window
periodic   weights that repeat
pixelcnn   gated PixelCNN as p(x | h) (van den Oord et al., 2016)
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

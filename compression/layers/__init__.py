"""Bayesian layers (Louizos, Ullrich and Welling, 2017), in the paper's order.

kl          Eqs. (8), (9), (29), (33)-(37): divergences
scales      Eqs. (5)-(7), (15)-(18): posteriors of scales
base        Eqs. (10), (11), (19), (20): masked means and variances
linear      Algorithms 1-4: local reparametrisation
layers      DenseGNJ, Conv2DGHS and so on
posterior   a network of them: its divergence, its draws
thresholds  Figures 4-7: which units stay
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "layers": [
            "Conv1DGHS",
            "Conv1DGNJ",
            "Conv1DSVD",
            "Conv2DGHS",
            "Conv2DGNJ",
            "Conv2DSVD",
            "Conv2DTransposeGHS",
            "Conv2DTransposeGNJ",
            "Conv2DTransposeSVD",
            "Conv3DGHS",
            "Conv3DGNJ",
            "Conv3DSVD",
            "DenseGHS",
            "DenseGNJ",
            "DenseSVD",
        ]
    },
)

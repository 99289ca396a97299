"""Bayesian compression: networks that learn which units they need and at which precision (Louizos et al. 2017)."""

from . import networks, report
from .base import BayesianLayer, StdCap
from .budget import size_left, thresholds_within
from .callbacks import KLWarmup, ShrinkDuringTraining, set_kl_weight
from .carry import carry_optimizer
from .classification import Examples, error_percent
from .container import load_bcz, save_bcz
from .convert import compress
from .cutting import Kept, compose
from .fitting import fit
from .layers import (
    Conv1DGHS,
    Conv1DGNJ,
    Conv1DSVD,
    Conv2DGHS,
    Conv2DGNJ,
    Conv2DSVD,
    Conv2DTransposeGHS,
    Conv2DTransposeGNJ,
    Conv2DTransposeSVD,
    Conv3DGHS,
    Conv3DGNJ,
    Conv3DSVD,
    DenseGHS,
    DenseGNJ,
    DenseSVD,
)
from .magnitude import MagnitudePruning
from .miracle import CodedFile, random_code
from .pack import PackConfig, Packed, PackedNetwork, pack_files
from .place_inputs import PlaceInputs
from .posterior import bayesian_layers, kl_divergence, predict_samples, seed_noise
from .recipe import Recipe
from .schedule import RecipeConfig
from .select_inputs import SelectInputs
from .sharing import ValueSharing, free, share_values
from .shrink import Shrunk, left_whole, shrink, shrink_bayesian, shrink_details, slice_bayesian
from .single_file import PackedFile, load, pack
from .sizes import Size, size_of
from .thresholds import apply_masks, automatic_threshold, checked_thresholds, masks, switched_off, thresholds_of

__all__ = [
    "BayesianLayer",
    "CodedFile",
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
    "Examples",
    "KLWarmup",
    "Kept",
    "MagnitudePruning",
    "PackConfig",
    "Packed",
    "PackedFile",
    "PackedNetwork",
    "PlaceInputs",
    "Recipe",
    "RecipeConfig",
    "SelectInputs",
    "ShrinkDuringTraining",
    "Shrunk",
    "Size",
    "StdCap",
    "ValueSharing",
    "apply_masks",
    "automatic_threshold",
    "bayesian_layers",
    "carry_optimizer",
    "checked_thresholds",
    "compose",
    "compress",
    "error_percent",
    "fit",
    "free",
    "kl_divergence",
    "left_whole",
    "load",
    "load_bcz",
    "masks",
    "networks",
    "pack",
    "pack_files",
    "predict_samples",
    "random_code",
    "report",
    "save_bcz",
    "seed_noise",
    "set_kl_weight",
    "share_values",
    "shrink",
    "shrink_bayesian",
    "shrink_details",
    "size_left",
    "size_of",
    "slice_bayesian",
    "switched_off",
    "thresholds_of",
    "thresholds_within",
]

"""Deep autoregressive networks (Gregor, Danihelka, Mnih, Blundell and Wierstra, 2014)."""

from darn import pictures, report
from darn.autoregressive import Conditional, FactorialConditional, LinearConditional
from darn.coding import decode, encode
from darn.completion import complete
from darn.density import DARNDensity
from darn.description_length import DescriptionLength, description_length, fast_sampling_cost
from darn.distribution import DARNDistribution, export
from darn.gradient_moments import gradient_report
from darn.gradients import ESTIMATORS, estimate
from darn.integer_model import IntegerModel
from darn.keras_model import KerasDARN
from darn.likelihood import exact_log_likelihood, importance_log_likelihood
from darn.local_config import LocalConfig
from darn.made import MADEConditional
from darn.model import DARN, DARNConfig, check_data
from darn.nade import EoNADEConditional, NADEConditional
from darn.optimization import make_optimizer
from darn.pixelcnn import PixelCNNConditional, PixelCNNConfig
from darn.report import ReportConfig
from darn.sampling import Sampler, linear_bits
from darn.selection import Choice, SearchConfig, choose
from darn.serialization import load_darn, save_darn
from darn.training import Trainer, TrainingConfig
from darn.weight_noise import WeightNoise

__all__ = [
    "DARN",
    "ESTIMATORS",
    "Choice",
    "Conditional",
    "DARNConfig",
    "DARNDensity",
    "DARNDistribution",
    "DescriptionLength",
    "EoNADEConditional",
    "FactorialConditional",
    "IntegerModel",
    "KerasDARN",
    "LinearConditional",
    "LocalConfig",
    "MADEConditional",
    "NADEConditional",
    "PixelCNNConditional",
    "PixelCNNConfig",
    "ReportConfig",
    "Sampler",
    "SearchConfig",
    "Trainer",
    "TrainingConfig",
    "WeightNoise",
    "check_data",
    "choose",
    "complete",
    "decode",
    "description_length",
    "encode",
    "estimate",
    "exact_log_likelihood",
    "export",
    "fast_sampling_cost",
    "gradient_report",
    "importance_log_likelihood",
    "linear_bits",
    "load_darn",
    "make_optimizer",
    "pictures",
    "report",
    "save_darn",
]

"""Section 5, Table 1: errors over folds and seeds."""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(
    __name__, submodules=["comparison", "comparison_config", "folds", "report", "results"]
)

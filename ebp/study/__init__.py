"""Section 5, Table 1: errors over folds and seeds."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submodules=["comparison", "comparison_config", "folds", "report", "results"]
)

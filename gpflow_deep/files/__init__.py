"""A model in one file: `save_model` and `load_model`. No file runs code."""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

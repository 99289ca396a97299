"""A model in one file: `save_model` and `load_model`. No file runs code."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submodules=["serialization", "stored_keras", "stored_names", "stored_objects"]
)

"""A model in one file (serialization): its objects and arrays (stored_objects), Keras layers among them (stored_keras),
of a closed list of names (stored_names). No file runs code."""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

"""The command line of a script: flags from dataclasses, errors as one line."""

import lazy_loader

# `flags` and `described` need no TensorFlow, what runs a script does.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

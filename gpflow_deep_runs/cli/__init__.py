"""The command line of a script: flags from dataclasses (flags), errors as one line (main).

Before TensorFlow starts: --help (described), contradictions of flags, rows that are refused; output: who reads it.
"""

import lazy_loader

# `flags` and `described` need no TensorFlow, what runs a script does.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Section 3: rows to files and back, by bits-back coding in exact arithmetic.

coding                       files
bit_stack                    the stack of bits
integer_sums, integer_layers, integer_model, matrices   the model in integers
rates                        what general compressors need
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submodules=["bit_stack", "coding", "integer_layers", "integer_model", "integer_sums", "matrices", "rates"]
)

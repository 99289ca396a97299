"""Trained networks as bits, as whole numbers, and as C.

packed        predictions by counting bits (signs, popcount)
packed_file   their file (packed_write); export
rounded       real weights in 8, 4 or 2 bits, as far as their posterior allows
c_code        a network as C (c_coding, c_rounded)
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__, submod_attrs={"packed": ["FILE_VERSION", "PackedNetwork"]})

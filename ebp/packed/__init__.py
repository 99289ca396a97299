"""Trained networks of binary weights as bits and as C.

packed        predictions by counting bits (signs, popcount)
packed_file   their file (packed_write); export
c_code        a network as C (c_coding, c_text)
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submodules=["c_code", "c_coding", "c_text", "export", "packed", "packed_file", "packed_write", "popcount", "signs"],
    submod_attrs={"packed": ["FILE_VERSION", "PackedNetwork"]},
)

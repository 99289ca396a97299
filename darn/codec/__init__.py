"""Section 3: rows to files and back, by bits-back coding in exact arithmetic; tables to files by themselves.

coding                         files, the stack of bits
integer_model                  the model in integers
rates                          what general compressors need
table                          delimited tables to files and back, byte for byte, without a model
table_columns, table_model     their columns; contexts, mixture and range coder
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

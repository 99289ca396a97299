"""The parts of a `.bcz` file.

chain_coding, graph_coding, layer_coding    networks
kernel_coding                               weights
context_coding, context_model               arithmetic coding with mixed contexts
costs                                       what reading may take
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)

"""Networks as graphs: which units may go, and the network without them.

graph, kinds, supported    what is read; which weights are no plain numbers
removal                    which channels vary and are needed, and arrays without the others
rebuild                    the smaller network (kept_inputs)
convert, normalized        a plain network made Bayesian; folded normalisation
portable                   the same network without layers of this package
sizes                      numbers of weights
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "graph": [
            "Graph",
            "Node",
            "Ref",
            "Tensor",
            "bypassed",
            "clone",
            "graph_of",
            "is_chain",
            "kernel_variables",
            "layers_of",
            "model_of",
        ]
    },
)

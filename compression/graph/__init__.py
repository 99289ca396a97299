"""Networks as graphs: which units may go, and the network without them.

graph, kinds, supported     what is read
flow, demand                which channels vary and are needed
shrink, cutting, rebuild    the smaller network (select_inputs, place_inputs, carry)
convert, normalized         a plain network made Bayesian; folded normalisation
weight_types                which weights are no plain numbers
portable                    the same network without layers of this package
sizes, ordering, neighbours numbers and orders of weights
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "carry",
        "convert",
        "cutting",
        "demand",
        "flow",
        "graph",
        "kinds",
        "neighbours",
        "normalized",
        "ordering",
        "place_inputs",
        "portable",
        "rebuild",
        "select_inputs",
        "shrink",
        "sizes",
        "supported",
        "weight_types",
    ],
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

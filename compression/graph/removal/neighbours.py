"""Which inputs of a layer are neighbours in an image, by which sparse kernels are coded in fewer bytes."""

from __future__ import annotations

import keras

from ..graph import Graph, Node
from ..kinds import is_convolution, is_transposed

__all__ = ["strides_of"]

_KEEPING = (keras.layers.Rescaling, keras.layers.Normalization, keras.layers.Dropout, keras.layers.Activation)


def strides_of(graph: Graph) -> dict[str, tuple[int, int]]:
    """For kernels as matrices [inputs, outputs], by name of the layer: how many rows before a row its neighbours to the
    left and above are. Layers that see no image are left out.
    """
    strides = {}
    for node in graph.nodes:
        kernel = getattr(node.layer, "kernel", None)
        if kernel is None or is_transposed(node.layer):
            continue
        # The axes of the window of a convolution, or of the image that was flattened for a dense layer.
        sizes = tuple(kernel.shape[:-1]) if is_convolution(node.layer) else _flattened(graph, node)
        if len(sizes) == 2:
            sizes = (1, *sizes)
        if len(sizes) == 3:
            # A sequence is an image of height 1, whose neighbours follow one another.
            height, width, channels = map(int, sizes if sizes[1] > 1 else (1, sizes[0], sizes[2]))
            if height * width > 1:
                strides[node.name] = (channels, width * channels)
    return strides


def _flattened(graph: Graph, node: Node) -> tuple[int, ...]:
    """The shape of the image of which a dense layer sees all pixels, or ()."""
    makers = {number: other for other in graph.nodes for number in other.outputs}
    # Back through calls that keep pixels in place, to the flattening.
    path = [node]
    while (maker := makers.get(path[-1].sources[0])) is not None and isinstance(maker.layer, _KEEPING):
        path.append(maker)
    if maker is None or not isinstance(maker.layer, keras.layers.Flatten):
        return ()
    # The shape before flattening, if it is the same for all examples.
    shape = graph.tensors[maker.sources[0]].shape[1:]
    return () if None in shape else tuple(int(size) for size in shape if size is not None)

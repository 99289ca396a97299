"""Networks whose weights are no plain float32 numbers: quantised ones, those with LoRA, those of other types."""

import keras

from .graph import Graph, layers_of

__all__ = ["check_plain_weights", "check_trainable", "weights_problem"]


def weights_problem(layer: keras.Layer) -> str:
    """What a layer, or one inside of it, has in place of plain weights, as the end of a sentence; "" for nothing."""
    for part in layer._flatten_layers():
        if (mode := getattr(part, "quantization_mode", None)) is not None:
            return f"is quantised ({mode}); give the network as it was before quantize(), which rounds its weights"
        if getattr(part, "lora_enabled", False):
            return (
                "has LoRA weights; write them with save_weights(), which merges them into the kernels, and load that "
                "file into the network as it was before enable_lora()"
            )
    return ""


def check_plain_weights(graph: Graph) -> None:
    """Refuse quantised layers and those with LoRA.

    :raises ValueError: naming the layer, and what to do.
    """
    for node in layers_of(graph):
        if problem := weights_problem(node.layer):
            raise ValueError(f"layer {node.name!r} {problem}.")


def check_trainable(graph: Graph) -> None:
    """Refuse a network that compression cannot train.

    :raises ValueError: as :func:`check_plain_weights`, or if weights are of another type than float32.
    """
    check_plain_weights(graph)
    for node in layers_of(graph):
        for variable in node.layer.weights:
            if keras.backend.is_float_dtype(variable.dtype) and variable.dtype != "float32":
                raise ValueError(
                    f"layer {node.name!r} has weights of type {variable.dtype}, and they must be float32 to be trained "
                    'and rounded; make it with dtype="float32" or a mixed policy, such as "mixed_bfloat16", and set '
                    "the same weights."
                )

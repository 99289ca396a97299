"""Kernels for a GPU, without one: TensorFlow's wheel registers them, and a traced function lists its operations.

An operation without a kernel for its types runs on the CPU, silently: its inputs are copied from the GPU and its
results back, in every step. Operations are those of the graph and of all functions that it calls, such as the bodies of
loops and the branches of conditions.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_registry

GPU = ("GPU", "DEFAULT")
"""Kernels that a GPU runs; "DEFAULT" ones are those of every device that has none of its own."""
XLA_GPU = ("XLA_GPU_JIT",)
"""Operations that XLA compiles for a GPU; registered by the first function that XLA compiles."""
_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")  # the last one has a kernel, and calls Python all the same


def nodes(function: Any) -> Iterator[Any]:
    """All operations (`NodeDef`) of a concrete function and of the functions that it calls."""
    graph = function.graph.as_graph_def()
    library = {each.signature.name: each.node_def for each in graph.library.function}
    waiting, seen = [graph.node], set()
    while waiting:
        for node in waiting.pop():
            yield node
            for value in node.attr.values():
                for called in (value.func, *value.list.func):
                    if called.name and called.name not in seen:
                        seen.add(called.name)
                        waiting.append(library[called.name])


def has_kernels(op: str, devices: tuple[str, ...]) -> bool:
    """Whether an operation has any kernel for one of these."""
    return any(kernel.device_type in devices for kernel in _kernels(op))


def is_for_xla(function: Any) -> bool:
    """Whether XLA compiles the whole function."""
    attributes = function.function_def.attr
    return "_XlaMustCompile" in attributes and attributes["_XlaMustCompile"].b


def without_kernel(function: Any) -> set[str]:
    """Operations of a concrete function, with their types, that a GPU cannot do, or that call Python.

    No hits: arguments (`Placeholder`), for which XLA has no kernel as they are values, and what `_is_on_host`.
    """
    devices = XLA_GPU if is_for_xla(function) else GPU
    return {
        f"{node.op} {_types(node)}".strip()
        for node in nodes(function)
        if node.op in _PYTHON or not (node.op == "Placeholder" or _is_on_host(node) or _has_kernel(node, devices))
    }


def _is_on_host(node: Any) -> bool:
    """Whether an operation belongs to the host whatever the device, and copies nothing.

    Constants of strings, which no device but the host has: the words of an `Assert`, read only if its check fails.
    (Other operations on strings do copy: they make words of numbers.) And what TensorFlow itself puts on the host: in
    the gradient of a product it sorts the axes of a shape, and shapes are in the memory of the host anyway.
    """
    if node.op == "Const":
        return bool(node.attr["dtype"].type == tf.string.as_datatype_enum)
    return node.op == "ListDiff" and "device:CPU" in node.device


@functools.cache
def _kernels(op: str) -> tuple[Any, ...]:
    return tuple(kernels.get_registered_kernels_for_op(op).kernel)


def _has_kernel(node: Any, devices: tuple[str, ...]) -> bool:
    return any(kernel.device_type in devices and _fits(kernel, node) for kernel in _kernels(node.op))


def _fits(kernel: Any, node: Any) -> bool:
    """Whether a kernel is for the types of this operation."""
    label = node.attr["_kernel"].s.decode() if "_kernel" in node.attr else ""
    return kernel.label == label and all(
        _is_allowed(_attribute(node, constraint.name), constraint.allowed_values.list)
        for constraint in kernel.constraint
    )


def _is_allowed(value: Any, allowed: Any) -> bool:
    if value.HasField("s"):
        return value.s in allowed.s
    types = value.list.type if value.HasField("list") else [value.type]
    return all(each in allowed.type for each in types)


def _attribute(node: Any, name: str) -> Any:
    if name in node.attr:
        return node.attr[name]
    return next(each.default_value for each in op_def_registry.get(node.op).attr if each.name == name)


def _types(node: Any) -> str:
    types = ((name, node.attr[name].type) for name in sorted(node.attr) if node.attr[name].HasField("type"))
    return ", ".join(f"{name}={tf.as_dtype(value).name}" for name, value in types)

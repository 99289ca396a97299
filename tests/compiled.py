"""Which functions the packages compile, as their sources say, and what these trace."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import tensorflow as tf

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "gpflow_deep",
    "darn",
    "rbm_tracking",
    "ebp",
    "compression",
    "gpflow_deep_base",
    "gpflow_deep_runs",
    "scripts",
)
_COMPILED = type(tf.function(lambda: None))
_COMPILERS = ("function", "py_function", "numpy_function", "py_func")  # the last three call Python from a graph

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def compiled_names(root: Path = ROOT) -> set[str]:
    """Every function of the packages that `tf.function` compiles, or that a graph calls in Python; see `name_of`."""
    return {
        name
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
        for name in names_in(path.read_text(encoding="utf-8"), _module(path.relative_to(root)))
    }


def names_in(source: str, module: str) -> Iterator[str]:
    """The same of one module. What is compiled there, but defined elsewhere, is named by the place and what it says."""
    nodes = list(_walk(ast.parse(source), f"{module}."))
    defined = {f"{prefix}{node.name}" for node, prefix in nodes if isinstance(node, _Function)}
    understood = set()
    for node, prefix in nodes:
        if isinstance(node, _Function):
            parts = {part for decorator in node.decorator_list for part in ast.walk(decorator) if _compiles(part)}
            understood |= parts
            if parts:
                yield f"{prefix}{node.name}"
        elif isinstance(node, ast.Call) and _compiles(node.func) and node.args:
            understood.add(node.func)
            yield _argument(node.args[0], prefix, defined)
    for node, prefix in nodes:
        if _compiles(node) and node not in understood:
            yield f"{prefix}{ast.unparse(node)}"


def name_of(compiled: Any) -> str:
    """Module and qualified name of the function that a compiled one was made of."""
    inner = compiled.python_function
    return f"{inner.__module__}.{getattr(inner, '__qualname__', type(inner).__name__)}"


def traced(call: Callable[[], Any]) -> tuple[str, Any]:
    """Name and concrete function of the first compiled function of the packages that `call` calls.

    It is traced for the arguments that it gets; neither it nor what comes after it is run.

    :raises ValueError: if there is none.
    """
    run = _COMPILED.__call__

    def stop(compiled: Any, *args: Any, **options: Any) -> Any:
        if tf.inside_function() or name_of(compiled).split(".")[0] not in PACKAGES:
            return run(compiled, *args, **options)
        raise _Stop(name_of(compiled), compiled.get_concrete_function(*args, **options))

    with mock.patch.object(_COMPILED, "__call__", stop):
        try:
            call()
        except _Stop as stopped:
            name, function = stopped.args
            return name, function
    raise ValueError("no compiled function of the packages was called.")


class _Stop(BaseException):
    """In place of a compiled call; no `Exception`, so that no handler of errors takes it for one."""


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _walk(node: ast.AST, prefix: str) -> Iterator[tuple[ast.AST, str]]:
    """All nodes, each with what comes before the name of a definition at its place."""
    for child in ast.iter_child_nodes(node):
        yield child, prefix
        inside = prefix
        if isinstance(child, _Function):
            inside = f"{prefix}{child.name}.<locals>."
        elif isinstance(child, ast.ClassDef):
            inside = f"{prefix}{child.name}."
        yield from _walk(child, inside)


def _compiles(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="tf" | "tensorflow"), attr=name):
            return name in _COMPILERS
        case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "tensorflow":
            return any(alias.name in _COMPILERS for alias in names)
    return False


def _argument(node: ast.AST, prefix: str, defined: set[str]) -> str:
    """The function that an expression at a place names."""
    if isinstance(node, ast.Lambda):
        return f"{prefix}<lambda>"
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
    scope = prefix
    while name and scope:
        if f"{scope}{name}" in defined:
            return f"{scope}{name}"
        scope = scope.removesuffix(".").removesuffix(".<locals>").rpartition(".")[0]
        scope = f"{scope}." if scope else ""
    return f"{prefix}{ast.unparse(node)}"

"""`gpflow_deep.files.stored_names`: what a file may name, and that nothing is imported because a file names it."""

import collections
import enum
import os
import subprocess  # noqa: F401 (a trap below is one of its classes)
import sys
import tempfile  # noqa: F401 (a trap below is one of its classes)
import threading
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.keras import tf_keras

import gpflow_deep
from gpflow_deep.files.stored_names import (
    Refused,
    find_class,
    find_function,
    given_names,
    name_of,
)
from tests.gpflow_deep import saved_models
from tests.gpflow_deep.saved_models import OwnIntegrator, OwnKernel, own_link

HERE = saved_models.__name__


class Outer:
    """A kernel inside a class has a name with a dot."""

    class Inner(gpflow.kernels.Matern12):
        """Found by that name."""


class WithDestructor(gpflow.kernels.Matern12):
    """Would run code whenever a file is refused."""

    def __del__(self) -> None:
        pass


class Kind(enum.Enum):
    """A user's choice."""

    A = 1


@pytest.mark.parametrize(
    "cls",
    [
        gpflow.kernels.SquaredExponential,
        gpflow.quadrature.NDiagGHQuadrature,
        tfp.bijectors.Softplus,
        tfp.distributions.LogNormal,
        tf.Module,
        OwnKernel,
        Outer.Inner,
    ],
)
def test_classes_that_every_file_may_name(cls: type) -> None:
    assert find_class(name_of(cls), {}) is cls


def test_a_name_is_that_of_the_outermost_package() -> None:
    """So that a file outlives the moving of a module; names with inner modules are found, too."""
    assert name_of(gpflow_deep.SVGPLayer) == "gpflow_deep:SVGPLayer"
    assert name_of(gpflow.kernels.Matern12) == "gpflow.kernels:Matern12"
    assert find_class("gpflow_deep.layers.svgp:SVGPLayer", {}) is gpflow_deep.SVGPLayer


@pytest.mark.parametrize("function", [tf.exp, tf.math.softplus, tf.nn.relu, gpflow.likelihoods.utils.inv_probit])
def test_functions_that_every_file_may_name(function: object) -> None:
    assert find_function(name_of(function), {}) is function  # type: ignore[arg-type]


def test_modules_of_gpflow_are_imported_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "gpflow.kernels.categorical"  # which gpflow itself does not import
    monkeypatch.delitem(sys.modules, name, raising=False)
    assert find_class(f"{name}:Categorical", {}).__module__ == name
    assert name in sys.modules


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("subprocess:Popen", "class subprocess.Popen, which no file may have"),
        ("tempfile:TemporaryDirectory", "which no file may have"),
        ("builtins:object", "which no file may have"),
        ("tensorflow:Variable", "which no file may have|module does not have"),
        (f"{tf_keras.layers.Dense.__module__}:Dense", "which no file may have"),
        ("tensorflow.python.keras.layers.core:Lambda", "which no file may have"),
        ("keras.src.layers.core.dense:Dense", "which no file may have|not known"),
        (f"{__name__}:WithDestructor", "WithDestructor, which no file may have"),
        (f"{HERE}:OwnIntegrator", r"does not derive from Module: if you trust it, .*custom_objects=\[OwnIntegrator\]"),
        (f"{HERE}:own_link", "which that module does not have"),
        (f"{HERE}:Missing", r"which that module does not have: give it, load_model\(path, custom_objects=\[Missing\]"),
        ("nowhere.kernels:Mine", r"is not known: import nowhere.kernels first, or give it, .*custom_objects=\[Mine\]"),
        ("gpflow.nowhere:Mine", "is not known"),
        ("gpflow..kernels:Mine", "is not known"),
        ("gpflow.kernels:__builtins__.object", "module does not have"),
        (":", "is not known"),
        ("", "is not known"),
    ],
)
def test_classes_that_no_file_may_name(name: str, message: str) -> None:
    with pytest.raises(Refused, match=message) as error:
        find_class(name, {})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name", ["os:system", "builtins:eval", "tensorflow:py_function", f"{HERE}:own_link", "tf.io.x"]
)
def test_functions_that_no_file_may_name(name: str) -> None:
    with pytest.raises(Refused, match=r"if you trust it, import it and give it, load_model\(path, custom_objects="):
        find_function(name, {})


def test_what_is_given_is_found_by_its_whole_and_its_bare_name() -> None:
    given = given_names([OwnIntegrator, own_link])
    assert find_class(f"{HERE}:OwnIntegrator", given) is OwnIntegrator
    assert find_class("__main__:OwnIntegrator", given) is OwnIntegrator
    assert find_function(f"{HERE}:own_link", given) is own_link
    renamed = given_names({"old_kernels:Before": OwnKernel, "link": own_link})
    assert find_class("old_kernels:Before", renamed) is OwnKernel
    assert find_function("anywhere:link", renamed) is own_link
    with pytest.raises(Refused, match=r"is not known: import other first"):
        find_class("other:Before", renamed)
    with pytest.raises(Refused, match="but custom_objects gives <function own_link"):
        find_class("anywhere:link", renamed)
    with pytest.raises(TypeError, match="must be classes and functions, got OwnIntegrator"):
        given_names([OwnIntegrator()])


def test_a_name_imports_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an unknown one, nor one that looks as if it were of GPflow, nor a lazy attribute of a known one."""
    (tmp_path / "trap.py").write_text("open('sprung', 'w').close()\nclass Kernel: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("trap:Kernel", "trap", "gpflow_trap:Kernel", "gpflow.trap:Kernel", f"{__name__}:trap.Kernel"):
        with pytest.raises(Refused):
            find_class(name, {})
        with pytest.raises(Refused):
            find_function(name, {})
    assert [path.name for path in tmp_path.iterdir()] == ["trap.py"]
    assert "trap" not in sys.modules


def test_what_could_not_be_found_again_is_refused_when_saving() -> None:
    class Local(gpflow.kernels.Matern12):
        """Has no name outside."""

    def local(x: tf.Tensor) -> tf.Tensor:
        return x

    cases = [
        (Local, "is defined inside a function: define it by `def` or `class` at the top of a module"),
        (type("Made", (gpflow.kernels.Matern12,), {}), "does not have by this name"),
        (WithDestructor, "is of the class .*WithDestructor"),
        (tf_keras.layers.Dense, "class tf_keras.*of Keras, layers of version 3 can be saved"),
        (threading.Thread, "is of the class threading.Thread"),
        (np.random.Generator, "is of the class numpy.random"),
        (collections.Counter, "is of the class collections.Counter"),
        (local, "is defined inside a function"),
        (lambda x: x, "is a lambda: define it by `def`"),
    ]
    for thing, message in cases:
        with pytest.raises(Refused, match=message):
            name_of(thing)


def test_choices_and_a_users_functions() -> None:
    assert find_class(name_of(Kind), {}, enum.Enum) is Kind
    assert name_of(own_link) == f"{HERE}:own_link"
    assert name_of(os.path.join) == "posixpath:join"  # it can be written, but has to be given to be read


def test_a_class_that_a_notebook_defined_once_more_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    again = type("OwnKernel", (gpflow.kernels.Matern12,), {"__module__": HERE, "__qualname__": "OwnKernel"})
    monkeypatch.setattr(saved_models, "OwnKernel", again)
    assert find_class(name_of(OwnKernel), {}) is again

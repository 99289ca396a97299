"""`gpflow_deep.files.stored_names`: what a file may name, and that nothing is imported because a file names it."""

import collections
import os
import subprocess  # noqa: F401 (a trap below is one of its classes)
import sys
import tempfile  # noqa: F401 (a trap below is one of its classes)
import threading
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.keras import tf_keras

import gpflow_deep
from gpflow_deep.files import stored_names
from gpflow_deep.files.stored_names import Refused, find, given_names, name_of, written
from tests.gpflow_deep import saved_models
from tests.gpflow_deep.saved_models import OwnIntegrator, OwnKernel, own_link

HERE = saved_models.__name__


@pytest.mark.parametrize(
    "thing",
    [
        *(gpflow.kernels.SquaredExponential, gpflow.quadrature.NDiagGHQuadrature, gpflow_deep.SVGPLayer),
        *(tfp.bijectors.Softplus, tfp.distributions.LogNormal, tfp.util.TransformedVariable),
        *(tf.exp, tf.math.softplus, tf.nn.relu, gpflow.likelihoods.utils.inv_probit, float, np.float32),
    ],
)
def test_what_every_file_may_name(thing: Any) -> None:
    assert find(name_of(thing), {}) is thing


def test_a_name_is_that_of_the_outermost_package() -> None:
    """So that a file outlives the moving of a module; names with inner modules are found, too."""
    assert name_of(gpflow_deep.SVGPLayer) == "gpflow_deep:SVGPLayer"
    assert name_of(gpflow.kernels.Matern12) == "gpflow.kernels:Matern12"
    assert find("gpflow_deep.layers.svgp:SVGPLayer", {}) is gpflow_deep.SVGPLayer


def test_modules_of_gpflow_are_imported_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "gpflow.kernels.categorical"  # which gpflow itself does not import
    monkeypatch.delitem(sys.modules, name, raising=False)
    assert find(f"{name}:Categorical", {}).__module__ == name
    assert name in sys.modules


def test_no_class_of_the_list_does_anything_by_existing() -> None:
    """An object of it without its constructor: it has no destructor, and is no layer of Keras 2."""
    own = [module for name, module in sys.modules.items() if name.split(".")[0] in ("gpflow", "gpflow_deep")]
    classes = {
        thing
        for module in own
        for thing in vars(module).values()
        if isinstance(thing, type) and stored_names._is_listed(thing)
    }
    assert len(classes) > 200
    for cls in classes:
        assert not hasattr(cls, "__del__"), cls
        assert not any(parent.__module__.startswith("tf_keras") for parent in cls.__mro__), cls


@pytest.mark.parametrize(
    "name",
    [
        *("subprocess:Popen", "tempfile:TemporaryDirectory", "builtins:object", "tensorflow:Variable"),
        *(f"{tf_keras.layers.Dense.__module__}:Dense", "tensorflow.python.keras.layers.core:Lambda"),
        *("keras.src.layers.core.dense:Dense", f"{HERE}:OwnIntegrator", f"{HERE}:OwnKernel", f"{HERE}:Missing"),
        *("nowhere.kernels:Mine", "gpflow.nowhere:Mine", "gpflow..kernels:Mine", "gpflow.kernels:__builtins__.object"),
        *(":", "", "os:system", "builtins:eval", "tensorflow:py_function", f"{HERE}:own_link", "tf.io.x"),
        "gpflow.utilities:set_trainable",
    ],
)
def test_what_no_file_may_name(name: str) -> None:
    message = (
        r", which not every file may name: if you trust it, import it and give it, load_model\(path, custom_objects="
    )
    with pytest.raises(Refused, match=message) as error:
        find(name, {})
    assert "\n" not in str(error.value)


def test_what_is_given_is_found_by_its_whole_and_its_bare_name() -> None:
    assert find(f"{HERE}:OwnKernel", given_names(OwnKernel)) is OwnKernel  # type: ignore[arg-type]
    given = given_names([OwnIntegrator, own_link])
    assert find(f"{HERE}:OwnIntegrator", given) is OwnIntegrator
    assert find("__main__:OwnIntegrator", given) is OwnIntegrator
    assert find(f"{HERE}:own_link", given) is own_link
    renamed = given_names({"old_kernels:Before": OwnKernel, "link": own_link})
    assert find("old_kernels:Before", renamed) is OwnKernel
    assert find("anywhere:link", renamed) is own_link
    with pytest.raises(Refused, match=r"has other\.Before, which not every"):
        find("other:Before", renamed)
    with pytest.raises(TypeError, match="must be classes and functions, got OwnIntegrator"):
        given_names([OwnIntegrator()])


def test_a_name_imports_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an unknown one, nor one that looks as if it were of GPflow, nor a lazy attribute of a known one."""
    (tmp_path / "trap.py").write_text("open('sprung', 'w').close()\nclass Kernel: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("trap:Kernel", "trap", "gpflow_trap:Kernel", "gpflow.trap:Kernel", f"{__name__}:trap.Kernel"):
        with pytest.raises(Refused):
            find(name, {})
    assert [path.name for path in tmp_path.iterdir()] == ["trap.py"]
    assert "trap" not in sys.modules


def test_what_could_not_be_found_again_is_refused_when_saving() -> None:
    class Local(gpflow.kernels.Matern12):
        """Has no name outside."""

    def local(x: tf.Tensor) -> tf.Tensor:
        return x

    cases = [
        (Local, "does not have by this name: define it by `def` or `class` at the top of a module"),
        (type("Made", (gpflow.kernels.Matern12,), {"__module__": HERE}), "does not have by this name"),
        (tf_keras.layers.Dense, "class tf_keras.*of Keras, layers of version 3 can be saved"),
        (threading.Thread, "is of the class threading.Thread"),
        (np.random.Generator, "is of the class numpy.random"),
        (collections.Counter, "is of the class collections.Counter"),
        (local, "does not have by this name"),
        (lambda x: x, "is a lambda: define it by `def`"),
    ]
    for thing, message in cases:
        with pytest.raises(Refused, match=message):
            name_of(thing)


def test_a_users_functions_can_be_written() -> None:
    assert name_of(own_link) == f"{HERE}:own_link"
    assert name_of(os.path.join) == "posixpath:join"  # it has to be given to be read


def test_a_class_that_a_notebook_defined_once_more_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    again = type("OwnKernel", (gpflow.kernels.Matern12,), {"__module__": HERE, "__qualname__": "OwnKernel"})
    monkeypatch.setattr(saved_models, "OwnKernel", again)
    assert find(name_of(OwnKernel), written) is OwnKernel
    assert find(name_of(again), written) is again

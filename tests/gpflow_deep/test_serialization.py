"""`gpflow_deep.files.serialization`: a loaded model is the saved one, and what cannot be saved is refused before
writing."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow_probability as tfp
from gpflow import kernels, likelihoods
from gpflow.utilities import parameter_dict

from gpflow_deep import (
    DeepGP,
    Predictor,
    SVGPLayer,
    Units,
    paper2017,
    with_global_inducing,
)
from gpflow_deep.files import serialization
from gpflow_deep.files.serialization import check_savable, load_model, save_model
from gpflow_deep_base.storage.container import Arrays, load_container, save_container
from tests.gpflow_deep import saved_models
from tests.gpflow_deep.saved_models import CASES, OWN, OwnKernel, own_link

ROOT = Path(__file__).resolve().parents[2]

QUICK = [
    *("gaussian_scale_function", "poisson_bound_method", "heteroskedastic", "categorical", "own_kernel_nested"),
    *("separate_points", "multiscale", "own_layer", "mean_network", "prior_of_vectors", "prior_of_priors"),
    *("shared_parameter", "transforms", "bare_values", "own_model", "own_integrator", "sigma_points"),
]


def small(rng: np.random.Generator, **settings: Any) -> DeepGP:
    layer = SVGPLayer(settings.pop("kernel", kernels.Matern12()), rng.normal(size=(4, 3)), **settings)
    return DeepGP([layer], likelihoods.Gaussian(), num_predict_samples=3)


@pytest.mark.parametrize("name", QUICK)
def test_a_loaded_model_is_the_saved_one(name: str, rng: np.random.Generator, tmp_path: Path) -> None:
    """Bit for bit, as values are stored and the operations are the same."""
    model, X, _ = CASES[name](rng)
    save_model(model, tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz", custom_objects=OWN)
    assert type(loaded) is type(model)
    expected, got = parameter_dict(model), parameter_dict(loaded)
    assert list(expected) == list(got)
    for path, parameter in expected.items():
        np.testing.assert_array_equal(parameter.numpy(), got[path].numpy(), err_msg=path)
        assert parameter.trainable == got[path].trainable, path
    assert len(set(map(id, expected.values()))) == len(set(map(id, got.values())))
    np.testing.assert_array_equal(model.log_prior_density(), loaded.log_prior_density())
    for a, b in zip(model.predict_y(X[:2]), loaded.predict_y(X[:2]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, np.ndarray], Path]]:
    """Of every case, what the saved model does, and where a fresh process wrote what the loaded one does."""
    folder, expected = tmp_path_factory.mktemp("cases"), {}
    for number, (name, case) in enumerate(CASES.items()):
        trained = case(np.random.default_rng(number))
        saved_models.train(*trained, steps=2, seed=0)
        (folder / name).mkdir()
        np.savez(folder / name / "data.npz", X=trained.X, Y=trained.Y)
        save_model(trained.model, folder / name / "model.npz")
        expected[name] = saved_models.outcome(trained), folder / name / "outcome.npz"
    program = f"import pathlib, {saved_models.__name__} as m; m.write_outcomes(pathlib.Path({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return expected


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", CASES)
def test_a_fresh_process_predicts_the_same_and_trains_on(
    name: str, outcomes: dict[str, tuple[dict[str, np.ndarray], Path]]
) -> None:
    expected, path = outcomes[name]
    with np.load(path) as got:
        assert set(got.files) == set(expected)
        for key, value in expected.items():
            np.testing.assert_array_equal(value, got[key], err_msg=key)
        assert np.all(np.isfinite(got["log_density"]))
        if name.startswith("prior"):
            assert got["log_prior"] != 0.0


# What a file keeps, and what it says.


def test_settings_of_the_model(rng: np.random.Generator, tmp_path: Path) -> None:
    model, X, Y = CASES["trainable"](rng)
    model.num_samples, model.num_predict_samples, model.prediction_seed = 3, 7, 11
    save_model(model, tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    assert (loaded.num_data, loaded.num_samples, loaded.num_predict_samples) == (model.num_data, 3, 7)
    assert (loaded.prediction_seed, loaded.integrator) == (11, model.integrator)
    assert [layer.label for layer in loaded.layers] == ["layer 1 of 2", "layer 2 of 2"]
    np.testing.assert_array_equal(model.elbo((X, Y), seed=1), loaded.elbo((X, Y), seed=1))
    save_model(loaded, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "model.npz").read_bytes()


def test_float32(rng: np.random.Generator, tmp_path: Path) -> None:
    gpflow.config.set_default_float(np.float32)
    X, Y = (rng.normal(size=(40, n)).astype(np.float32) for n in (3, 2))
    model = paper2017(X, Y, 2, num_inducing=4)
    save_model(model, tmp_path / "model.npz")
    np.testing.assert_array_equal(model.predict_y(X[:3])[0], load_model(tmp_path / "model.npz").predict_y(X[:3])[0])
    gpflow.config.set_default_float(np.float64)
    with pytest.raises(ValueError, match=r"float32 model.*set_default_float\(np.float32\)"):
        load_model(tmp_path / "model.npz")


@pytest.mark.parametrize("kind", ["gaussian", "global"])
def test_another_jitter_moves_no_prediction(kind: str, rng: np.random.Generator, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    model = small(rng, q_sqrt_scale=0.1)
    model = model if kind == "gaussian" else with_global_inducing(model)
    save_model(model, path)
    X = rng.normal(size=(5, model.layers[0].input_dim))
    before = model.predict_f(X)
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-2)):
        for one, other in zip(before, load_model(path).predict_f(X), strict=True):
            np.testing.assert_array_equal(one, other)
        assert np.any(model.predict_f(X)[1] != before[1])  # of a model that is not saved


def test_other_versions_are_told(rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.npz"
    save_model(small(rng), path)
    monkeypatch.setitem(serialization._VERSIONS, "gpflow", "1.0.0")
    with pytest.warns(UserWarning, match=rf"gpflow {gpflow.__version__} \(here 1\.0\.0\); predictions may differ"):
        load_model(path)


def test_a_name_that_has_changed(rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of a user's class is gone, or was never imported: the error says what to do, and it helps."""
    path = tmp_path / "model.npz"
    model = small(rng, kernel=saved_models.OwnKernel(1.2))
    monkeypatch.setattr(saved_models.OwnKernel, "__module__", "old_kernels")
    monkeypatch.setitem(sys.modules, "old_kernels", saved_models)
    save_model(model, path)
    monkeypatch.delitem(sys.modules, "old_kernels")
    with pytest.raises(
        ValueError, match=r"old_kernels\.OwnKernel, which .*: if you trust it, import it and give it, load_model\(path"
    ):
        load_model(path)
    X = rng.normal(size=(2, 3))
    for given in ([saved_models.OwnKernel], {"old_kernels:OwnKernel": saved_models.OwnKernel}):
        loaded = load_model(path, custom_objects=given)
        np.testing.assert_array_equal(model.predict_y(X)[0], loaded.predict_y(X)[0])


def test_functions_and_other_classes_have_to_be_given(rng: np.random.Generator, tmp_path: Path) -> None:
    for name, message in [
        (
            "poisson_own_link",
            r"own_link, which .* if you trust it, import it and give it, .*custom_objects=\{.own_link.: own_link",
        ),
        ("own_integrator", r"OwnIntegrator, which not every file .*custom_objects=\{.OwnIntegrator.: OwnIntegrator"),
        ("own_kernel", r"OwnKernel, which not every file .*custom_objects=\{.OwnKernel.: OwnKernel"),
    ]:
        save_model(CASES[name](rng).model, tmp_path / "model.npz")
        with pytest.raises(ValueError, match=message):
            load_model(tmp_path / "model.npz")


def test_all_that_has_to_be_given_is_told_at_once(rng: np.random.Generator, tmp_path: Path) -> None:
    model = small(rng, kernel=with_attribute(part=OwnKernel(1.0), link=own_link, part_of=kernels.White()))
    save_model(model, tmp_path / "model.npz")
    message = r'OwnKernel, .*own_link, which not .*custom_objects=\{"OwnKernel": OwnKernel, "own_link": own_link\}'
    with pytest.raises(ValueError, match=message):
        load_model(tmp_path / "model.npz")
    load_model(tmp_path / "model.npz", custom_objects={"OwnKernel": OwnKernel, "own_link": own_link})


def test_classes_that_a_model_keeps(rng: np.random.Generator, tmp_path: Path) -> None:
    """A class can be called, with whatever a file has: one that is neither transform nor prior has to be given."""
    model, path = small(rng, kernel=with_attribute(kind=kernels.White, prior=tfp.distributions.Gamma)), tmp_path / "m"
    save_model(model, path)
    with pytest.raises(ValueError, match=r"White as a value: .*custom_objects=\{.White.: White"):
        load_model(path)
    kernel = load_model(path, custom_objects=[kernels.White]).kernel
    assert (kernel.kind, kernel.prior) == (kernels.White, tfp.distributions.Gamma)


def test_a_predictor_passes_on_what_is_given(rng: np.random.Generator, tmp_path: Path) -> None:
    model, X, Y = CASES["own_integrator"](rng)
    Predictor(model, Units.fit(X, Y, "gaussian")).save(tmp_path)
    with pytest.raises(ValueError, match=r"custom_objects=\{.OwnIntegrator.: OwnIntegrator"):
        Predictor.load(tmp_path)
    loaded = Predictor.load(tmp_path, custom_objects=OWN)
    assert loaded.model.integrator == model.integrator


# What cannot be saved.


class OwnItems(dict[str, Any]):
    """Holds more than attributes."""


def with_attribute(**attributes: Any) -> kernels.Kernel:
    kernel = kernels.Matern12()
    for name, value in attributes.items():
        setattr(kernel, name, value)
    return kernel


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: with_attribute(link=lambda x: x), r"model\.layers\[0\]\.kernel\.link is the function .*is a lambda"),
        (lambda: with_attribute(lock=threading.Lock()), r"model\.layers\[0\]\.kernel\.lock is of the class _thread"),
        (lambda: with_attribute(items=OwnItems(a=1)), "its copy could not be made: the model has a damaged structure"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_training_and_nothing_is_written(
    make: Callable[[], kernels.Kernel], message: str, rng: np.random.Generator, tmp_path: Path
) -> None:
    model, target = small(rng, kernel=make()), tmp_path / "model.npz"
    target.write_bytes(b"an older model")
    for act in (check_savable, lambda model: save_model(model, target)):
        with pytest.raises(ValueError, match=message) as error:
            act(model)
        assert "\n" not in str(error.value)
    assert target.read_bytes() == b"an older model"
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]


def test_only_deep_gps_are_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the model must be a DeepGP, got Matern12"):
        save_model(kernels.Matern12(), tmp_path / "model.npz")  # type: ignore[arg-type]


# Files of others.


@pytest.fixture
def stored(rng: np.random.Generator, tmp_path: Path) -> tuple[Path, dict[str, Any], Arrays]:
    """A file, and what is in it."""
    save_model(small(rng), tmp_path / "model.npz")
    _, structure, arrays = load_container(tmp_path / "model.npz", kind="a deep GP", versions=(5,))
    return tmp_path / "model.npz", structure, arrays


def write(path: Path, structure: dict[str, Any], arrays: Arrays) -> None:
    save_container(path, kind="a deep GP", version=5, header=structure, arrays=arrays)


def test_missing_cut_and_other_files(tmp_path: Path, stored: tuple[Path, dict[str, Any], Arrays]) -> None:
    """What the ground floor finds is told in one line, with the path."""
    path, content = stored[0], stored[0].read_bytes()
    with pytest.raises(ValueError, match=r"nothing\.npz cannot be read as a deep GP \(.*No such file"):
        load_model(tmp_path / "nothing.npz")
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"model\.npz cannot be read as a deep GP \("):
        load_model(path)
    save_container(path, kind="a deep GP", version=99, header={}, arrays={})
    with pytest.raises(ValueError, match=r"cannot be read as a deep GP \(it has version 99, and this program reads 5"):
        load_model(path)
    with pytest.raises(
        ValueError, match=r"takes [0-9,]+ bytes, and all of it may take 1,000; .* allow more with max_bytes"
    ):
        path.write_bytes(content)
        load_model(path, max_bytes=1000)


def state_of(node: dict[str, Any]) -> dict[str, Any]:
    """The attributes of an object."""
    state: dict[str, Any] = node["object"][1]
    return state


def kernel_of(structure: dict[str, Any]) -> dict[str, Any]:
    kernel: dict[str, Any] = state_of(state_of(structure["model"])["layers"][0])["kernel"]
    return kernel


def no_settings(structure: dict[str, Any]) -> None:
    del structure["jitter"]


def no_model(structure: dict[str, Any]) -> None:
    del structure["model"]


def unknown_class(structure: dict[str, Any]) -> None:
    kernel_of(structure)["object"][0] = "trap:Kernel"


def class_to_call(structure: dict[str, Any]) -> None:
    """Called as a link function, it would write a file; others of Keras 2 would load programs from a path."""
    writer = {"name": "gpflow.monitor:ScalarToTensorBoard"}
    state_of(kernel_of(structure))["link"] = {"partial": [writer, [str(Path.cwd() / "sprung"), 1], {"dict": []}]}


def abstract(structure: dict[str, Any]) -> None:
    kernel_of(structure)["object"][0] = "gpflow.kernels.base:Kernel"


def circle(structure: dict[str, Any]) -> None:
    state_of(structure["model"])["layers"] = {"tuple": [{"again": 7000}]}


def other_object(structure: dict[str, Any]) -> None:
    structure["model"] = {"tuple": [structure["model"]]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (no_settings, "is damaged .it has no settings"),
        (no_model, "has arrays that its structure does not use"),
        (
            unknown_class,
            "has trap.Kernel, which not every file may name: if you trust",
        ),
        (class_to_call, "has gpflow.monitor.ScalarToTensorBoard, which not every file may name"),
        (abstract, "has a damaged structure .TypeError: .*abstract"),
        (circle, "has no object with the number 7000 where it is needed|arrays that its structure does not use"),
        (other_object, "must have a DeepGP, got tuple"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_files_of_strangers_are_refused_in_one_line(
    change: Callable[[dict[str, Any]], None],
    message: str,
    stored: tuple[Path, dict[str, Any], Arrays],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, structure, arrays = stored
    (path.parent / "trap.py").write_text("open('sprung', 'w').close()\nclass Kernel: pass\n")
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.chdir(path.parent)
    change(structure)
    write(path, structure, arrays)
    with pytest.raises(ValueError, match=message) as error:
        load_model(path)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(path))
    assert sorted(part.name for part in path.parent.iterdir()) == ["model.npz", "trap.py"]
    assert "trap" not in sys.modules

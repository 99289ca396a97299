"""A deep GP in one file: its structure as JSON and its parameters as arrays, in an .npz file without pickled objects.

    save_model(model, "model.npz")
    model = load_model("model.npz")

The loaded model predicts as the saved one and can be trained further; it needs no training data. Kept are structure,
parameter values, which parameters are trainable, and the settings of `DeepGP`; priors are not.
"""

from __future__ import annotations

import io
import json
import os
import uuid
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import inducing_variables, kernels, likelihoods, mean_functions
from gpflow.utilities import parameter_dict, set_trainable

from .deep_gp import DeepGP, DeepGPQuad
from .layers import SVGPLayer
from .quadrature import GaussHermite, MonteCarlo

__all__ = ["load_model", "save_model", "whole_file"]

_FORMAT = 1
_CONFIG = "config"

_STATIONARY = ("SquaredExponential", "Exponential", "Matern12", "Matern32", "Matern52", "RationalQuadratic")
_VARIANCE_ONLY = ("Constant", "White", "Linear")
_COMBINATIONS = ("Sum", "Product")
_MULTIOUTPUT = ("SeparateIndependent", "LinearCoregionalization")
_SHARED_INDUCING = ("SharedIndependentInducingVariables", "FallbackSharedIndependentInducingVariables")
_SEPARATE_INDUCING = ("SeparateIndependentInducingVariables", "FallbackSeparateIndependentInducingVariables")

Config = dict[str, Any]


def save_model(model: DeepGP, path: str | os.PathLike[str]) -> None:
    """Write a model to an .npz file, whole or not at all.

    Kernels: squared exponential, exponential, Matern, rational quadratic, linear, constant, white, their sums and
    products, and `SharedIndependent`, `SeparateIndependent`, `LinearCoregionalization` of them. Mean functions: zero,
    constant, identity, linear. Inducing points, shared or separate. Likelihoods: `Gaussian` with one variance,
    `StudentT`, `Poisson`, `Bernoulli`, `MultiClass`, `Softmax`, `Ordinal`, with GPflow's default links.

    :param path: file to write; it should end in .npz.
    :raises ValueError: if the model has a part that cannot be saved, naming it. Nothing is written then.
    """
    parameters = parameter_dict(model)
    config = {
        "format": _FORMAT,
        "float": gpflow.default_float().__name__,
        "model": _model_config(model),
        "trainable": {name: bool(parameter.trainable) for name, parameter in parameters.items()},
    }
    values = {name: parameter.unconstrained_variable.numpy() for name, parameter in parameters.items()}
    rebuilt = parameter_dict(_built(config, values, "the model"))
    for name, parameter in parameters.items():
        if not np.array_equal(parameter.numpy(), rebuilt[name].numpy(), equal_nan=True):
            raise ValueError(
                f"parameter {name} cannot be saved: its transform is not the default one of its kind; give the "
                "parameter its default transform, or save the values of parameter_dict(model) yourself."
            )
    content = io.BytesIO()  # a zip file that is cut short by a full disk would be closed again, with a traceback
    np.savez(content, **{_CONFIG: np.array(json.dumps(config))}, **values)
    with whole_file(path) as file:
        file.write(content.getbuffer())


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write `path` in one piece: it has its former content until the end of the `with` statement."""
    path = Path(path)
    temporary = path.with_name(f".tmp-{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load_model(path: str | os.PathLike[str]) -> DeepGP:
    """Build the model that `save_model` wrote.

    :raises ValueError: if the file is missing or damaged, is no saved model, or has another float type than GPflow's
        current default (call `gpflow.config.set_default_float` first).
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            config = json.loads(str(stored[_CONFIG]))
            values = {name: stored[name] for name in stored.files if name != _CONFIG}
        found, float_type = config["format"], config["float"]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is no complete file of save_model ({error}); save the model again.") from error
    if found != _FORMAT:
        raise ValueError(f"{path} must have format {_FORMAT}, got {found!r}; use the version that wrote it.")
    if float_type != gpflow.default_float().__name__:
        raise ValueError(
            f"{path} has a {float_type} model, but GPflow's default is {gpflow.default_float().__name__}; call "
            f"gpflow.config.set_default_float(np.{float_type}) first."
        )
    return _built(config, values, str(path))


def _built(config: Config, values: dict[str, np.ndarray], what: str) -> DeepGP:
    try:
        model = _build_model(config["model"])
        trainable = config["trainable"]
        parameters = parameter_dict(model)
        if not parameters.keys() == values.keys() == trainable.keys():
            odd = sorted(parameters.keys() ^ values.keys() | parameters.keys() ^ trainable.keys())
            raise ValueError(f"{what} has not the parameters of its structure: {', '.join(odd)}.")
        for name, parameter in parameters.items():
            variable, value = parameter.unconstrained_variable, values[name]
            if tuple(variable.shape) != value.shape or variable.dtype.as_numpy_dtype != value.dtype:
                raise ValueError(
                    f"{what}: {name} must be {variable.dtype.name} {list(variable.shape)}, got {value.dtype} "
                    f"{list(value.shape)}."
                )
            variable.assign(value)
            set_trainable(parameter, trainable[name])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{what} has a damaged structure ({error!r}); save the model again.") from error
    return model


# The model and its layers.


def _model_config(model: DeepGP) -> Config:
    if type(model) not in (DeepGP, DeepGPQuad):
        raise _unsupported("model", model)
    integrator = model.integrator
    if not isinstance(integrator, MonteCarlo | GaussHermite):
        raise _unsupported("integrator", integrator)
    return {
        "type": type(model).__name__,
        "layers": [_layer_config(layer) for layer in model.layers],
        "likelihood": _likelihood_config(model.likelihood),
        "num_nodes": integrator.num_nodes if isinstance(integrator, GaussHermite) else None,
        "num_data": None if model.num_data is None else int(model.num_data),
        "num_samples": int(model.num_samples),
        "num_predict_samples": int(model.num_predict_samples),
        "prediction_seed": int(model.prediction_seed),
    }


def _build_model(config: Config) -> DeepGP:
    layers = [_build_layer(layer) for layer in config["layers"]]
    likelihood = _build_likelihood(config["likelihood"])
    settings = {key: config[key] for key in ("num_data", "num_predict_samples", "prediction_seed")}
    if config["type"] == "DeepGPQuad":
        return DeepGPQuad(layers, likelihood, num_nodes=config["num_nodes"], **settings)
    integrator = MonteCarlo() if config["num_nodes"] is None else GaussHermite(config["num_nodes"])
    return DeepGP(layers, likelihood, num_samples=config["num_samples"], integrator=integrator, **settings)


def _layer_config(layer: SVGPLayer) -> Config:
    return {
        "name": layer.name,
        "kernel": _kernel_config(layer.kernel),
        "inducing_variable": _inducing_config(layer.inducing_variable),
        "mean_function": _mean_config(layer.mean_function),
        "num_inducing": int(layer.q_mu.shape[0]),
        "num_latent_gps": layer.num_latent_gps,
        "q_diag": layer.q_diag,
        "whiten": layer.whiten,
        "has_noise": layer.noise_variance is not None,
        "input_propagation": layer.input_propagation,
        "precision": layer.precision,
    }


def _build_layer(config: Config) -> SVGPLayer:
    M, L = config["num_inducing"], config["num_latent_gps"]
    q_sqrt = np.ones([M, L]) if config["q_diag"] else np.tile(np.eye(M), [L, 1, 1])
    return SVGPLayer(
        _build_kernel(config["kernel"]),
        _build_inducing(config["inducing_variable"]),
        num_latent_gps=L,
        mean_function=_build_mean(config["mean_function"]),
        q_sqrt=q_sqrt,
        noise_variance=1.0 if config["has_noise"] else None,
        name=config["name"],
        **{key: config[key] for key in ("q_diag", "whiten", "input_propagation", "precision")},
    )


# GPflow's parts. The values of parameters are set later; here they only have their shapes.


def _kernel_config(kernel: kernels.Kernel) -> Config:
    name = type(kernel).__name__
    config: Config = {"type": name}
    if type(kernel) is not getattr(kernels, name, None):
        raise _unsupported("kernel", kernel)
    if name == "SharedIndependent":
        return {**config, "kernels": [_kernel_config(kernel.kernel)], "output_dim": kernel.output_dim}
    if name in _COMBINATIONS + _MULTIOUTPUT:
        config["kernels"] = [_kernel_config(part) for part in kernel.kernels]
        return {**config, "W": list(kernel.W.shape)} if name == "LinearCoregionalization" else config
    if name not in _STATIONARY + _VARIANCE_ONLY:
        raise _unsupported("kernel", kernel)
    for key in ("lengthscales", "variance"):
        if hasattr(kernel, key):
            config[key] = list(getattr(kernel, key).shape)
    return {**config, "active_dims": _dims_config(kernel.active_dims)}


def _build_kernel(config: Config) -> kernels.Kernel:
    name, make = config["type"], getattr(kernels, config["type"])
    if "kernels" in config:
        parts = [_build_kernel(part) for part in config["kernels"]]
        if name == "SharedIndependent":
            return make(parts[0], output_dim=config["output_dim"])
        return make(parts, W=np.zeros(config["W"])) if name == "LinearCoregionalization" else make(parts)
    dims = config["active_dims"]
    settings: dict[str, Any] = {key: np.ones(config[key]) for key in ("lengthscales", "variance") if key in config}
    if dims is not None:
        settings["active_dims"] = slice(*dims["slice"]) if "slice" in dims else dims["list"]
    return make(**settings)


def _dims_config(dims: Any) -> Config | None:
    if isinstance(dims, slice):
        return None if dims == slice(None) else {"slice": [dims.start, dims.stop, dims.step]}
    return {"list": [int(d) for d in np.ravel(dims)]}


def _inducing_config(inducing: inducing_variables.InducingVariables) -> Config:
    name = type(inducing).__name__
    if type(inducing) is inducing_variables.InducingPoints:
        return {"type": name, "Z": list(inducing.Z.shape)}
    if name in _SHARED_INDUCING + _SEPARATE_INDUCING:
        return {"type": name, "parts": [_inducing_config(part) for part in inducing.inducing_variables]}
    raise _unsupported("inducing variable", inducing)


def _build_inducing(config: Config) -> inducing_variables.InducingVariables:
    if "Z" in config:
        return inducing_variables.InducingPoints(np.zeros(config["Z"], gpflow.default_float()))
    parts = [_build_inducing(part) for part in config["parts"]]
    make = getattr(inducing_variables, config["type"])
    return make(parts[0]) if config["type"] in _SHARED_INDUCING else make(parts)


def _mean_config(mean_function: mean_functions.MeanFunction) -> Config:
    name = type(mean_function).__name__
    if type(mean_function) is mean_functions.Zero:
        return {"type": name, "output_dim": int(mean_function.output_dim)}
    if type(mean_function) is mean_functions.Identity:
        return {"type": name, "input_dim": mean_function.input_dim}
    if type(mean_function) is mean_functions.Linear:
        return {"type": name, "A": list(mean_function.A.shape), "b": list(mean_function.b.shape)}
    if type(mean_function) is mean_functions.Constant:
        return {"type": name, "c": list(mean_function.c.shape)}
    raise _unsupported("mean function", mean_function)


def _build_mean(config: Config) -> mean_functions.MeanFunction:
    settings = dict(config)
    make = getattr(mean_functions, settings.pop("type"))
    return make(**{key: np.zeros(value) if isinstance(value, list) else value for key, value in settings.items()})


def _likelihood_config(likelihood: likelihoods.Likelihood) -> Config:
    name = type(likelihood).__name__
    if type(likelihood) is likelihoods.Gaussian and isinstance(likelihood.variance, gpflow.Parameter):
        return {"type": name, "variance": list(likelihood.variance.shape)}
    if type(likelihood) is likelihoods.StudentT and isinstance(likelihood.scale, gpflow.Parameter):
        return {"type": name, "scale": list(likelihood.scale.shape), "df": float(likelihood.df)}
    if type(likelihood) is likelihoods.Poisson and likelihood.invlink is tf.exp:
        return {"type": name, "binsize": float(likelihood.binsize)}
    if type(likelihood) is likelihoods.Bernoulli and likelihood.invlink is likelihoods.utils.inv_probit:
        return {"type": name}
    if type(likelihood) in (likelihoods.MultiClass, likelihoods.Softmax):
        return {"type": name, "num_classes": int(likelihood.num_classes)}
    if type(likelihood) is likelihoods.Ordinal:
        return {"type": name, "bin_edges": np.asarray(likelihood.bin_edges).tolist()}
    raise _unsupported("likelihood", likelihood)


def _build_likelihood(config: Config) -> likelihoods.Likelihood:
    settings = dict(config)
    make = getattr(likelihoods, settings.pop("type"))
    for key in ("variance", "scale"):
        if key in settings:
            settings[key] = np.ones(settings[key])
    if "bin_edges" in settings:
        settings["bin_edges"] = np.asarray(settings["bin_edges"])
    return make(**settings)


def _unsupported(kind: str, part: Any) -> ValueError:
    return ValueError(
        f"the {kind} {type(part).__name__} (or a setting of it) cannot be saved; see save_model for what can, or save "
        "the values of gpflow.utilities.parameter_dict(model) and build the model in code."
    )

"""A trained network with all that is needed to classify raw rows: coding of inputs, names of classes, calibration.

predictor = Predictor(network, coding, ("no", "yes")).calibrated(X_unseen, numbers)
predictor.save("model.npz")
Predictor.load("model.npz").predict(X).labels
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpflow_deep_base.storage.container import load_container, save_container
from gpflow_deep_base.storage.limits import refuse_damaged

from ..network.coding import InputCoding, Matrix
from ..network.network import EBPNetwork
from .calibration import Calibration, fit_calibration, log_probabilities

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["Predicted", "Predictor"]

_HEADS = {"SignHead": ("binary", "multiclass"), "SoftmaxHead": ("softmax", "softmax")}
_PRIORS = {"GaussianWeights": "real", "BinaryWeights": "binary", "TernaryWeights": "ternary"}
#: What a file is, and the version of its content.
_KIND = "a trained network of EBP"
_VERSION = 1


class Predicted(NamedTuple):
    """Of each row the number of the most probable class [N], and log probabilities of all in nats [N, C]."""

    numbers: NDArray[np.intp]
    log_p: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Predictor:
    """EBP-P of raw rows.

    :param network: with weights that are all "real", "binary" or "ternary", and a head for classes.
    :param coding: makes its inputs of raw rows.
    :param class_names: C of them.
    :param calibration: of its scores; None: Eq. (4.7).
    """

    network: EBPNetwork
    coding: InputCoding
    class_names: tuple[str, ...]
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        num_outputs = self.network.layer_sizes[-1]
        if len(set(self.class_names)) != len(self.class_names) or len(self.class_names) != max(2, num_outputs):
            raise ValueError(f"class_names must be {max(2, num_outputs)} different names, got {self.class_names!r}.")

    def calibrated(self, X: Matrix, numbers: ArrayLike) -> Predictor:
        """The same with probabilities calibrated by rows that the network has not learned; see
        `ebp.estimators.calibration`.

        :param X: raw rows [N, D].
        :param numbers: of their classes, [N].
        :raises ValueError: if these are not whole numbers from 0 to C - 1, one for each row.
        """
        scores = self._scores(X)
        numbers = np.asarray(numbers)
        num_classes = len(self.class_names)
        if numbers.shape != (len(scores),) or not np.isin(numbers, np.arange(num_classes)).all():
            raise ValueError(
                f"numbers must be one from 0 to {num_classes - 1} for each of {len(scores)} rows, the place of its "
                f"class in class_names, got shape {list(numbers.shape)} and {np.unique(numbers)[:5].tolist()}."
            )
        return replace(self, calibration=fit_calibration(scores, numbers))

    def predict(self, X: Matrix) -> Predicted:
        """The classes of raw rows [N, D] and their probabilities."""
        scores = self._scores(X)
        logits = scores if self.calibration is None else self.calibration(scores)
        log_p = log_probabilities(logits, are_logits=self.calibration is not None or self._is_softmax)
        return Predicted(np.argmax(log_p, axis=1), log_p)

    def columns(self, predicted: Predicted, numbers: ArrayLike | None = None) -> dict[str, np.ndarray]:
        """Predictions as the columns of a table, [N] each: "label", "probability_NAME" of each class, and, with the
        numbers of the right ones, "log_density" in nats."""
        names = np.array(self.class_names, dtype=object)
        columns = {"label": names[predicted.numbers]}
        columns |= {f"probability_{name}": np.exp(predicted.log_p[:, i]) for i, name in enumerate(self.class_names)}
        if numbers is not None:
            columns["log_density"] = predicted.log_p[np.arange(len(predicted.log_p)), np.asarray(numbers, np.intp)]
        return columns

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file of `gpflow_deep_base.storage.container`, whole or not at all.

        :raises ValueError: if its network has weights or a head of another kind, or convolutions.
        """
        architecture = self.network.architecture
        # Kinds that a file has names for.
        kinds = {_PRIORS.get(type(prior).__name__) for prior in architecture.priors}
        heads = _HEADS.get(type(architecture.head).__name__)
        if len(kinds) != 1 or None in kinds or heads is None:
            raise ValueError("only networks with real, binary or ternary weights and a head for classes can be saved.")
        if architecture.convolutions:
            raise ValueError(
                "networks of convolutions cannot be saved here; use ebp.export_network or tf.train.Checkpoint."
            )
        # What the network is; its numbers are arrays.
        header = {
            "layer_sizes": architecture.layer_sizes,
            "weights": kinds.pop(),
            "head": heads[len(self.class_names) > 2],
            "biases": architecture.has_biases,
            "dtype": architecture.dtype.name,
            "class_names": self.class_names,
            "coding": self.coding.kind,
            "calibration": None if self.calibration is None else [self.calibration.scale, self.calibration.offset],
        }
        arrays = {"mean": self.coding.mean, "factor": self.coding.factor}
        arrays |= {name: variable.numpy() for name, variable in _variables(self.network).items()}
        save_container(path, kind=_KIND, version=_VERSION, header=header, arrays=arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Predictor:
        """Read it; nothing is unpickled.

        :raises ValueError: if it is missing or damaged.
        """
        _, header, arrays = load_container(path, kind=_KIND, versions=(_VERSION,))
        try:
            return cls._of(header, arrays)
        except (ValueError, KeyError, TypeError) as error:
            refuse_damaged(path, _KIND, error)

    @classmethod
    def _of(cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Predictor:
        sizes = header["layer_sizes"]
        calibration = header["calibration"]
        _check_sizes(sizes, arrays)
        if header["weights"] not in _PRIORS.values():
            raise ValueError(f"weights must be real, binary or ternary, got {header['weights']!r:.40}")
        if header["head"] not in ("binary", "multiclass", "softmax"):
            raise ValueError(f"head must be binary, multiclass or softmax, got {header['head']!r:.40}")
        # The coding, and a network of its kind.
        coding = InputCoding.from_json({"kind": header["coding"], "mean": arrays["mean"], "factor": arrays["factor"]})
        if len(coding.mean) != sizes[0]:
            raise ValueError(f"the coding must be of {sizes[0]} columns, got {len(coding.mean)}")
        network = EBPNetwork(
            sizes, header["weights"], head=header["head"], biases=header["biases"] is True, dtype=header["dtype"]
        )
        # The posterior, every number of which has to be finite.
        for name, variable in _variables(network).items():
            if not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name} must be finite")
            variable.assign(arrays[name].astype(variable.dtype.as_numpy_dtype))
        # Names of the classes, and the calibration, if the file has one.
        names = tuple(map(str, header["class_names"]))
        fitted = None if calibration is None else Calibration(*map(float, calibration[:2]))
        if fitted is not None and not (
            len(calibration) == 2 and 0 < fitted.scale < np.inf and np.isfinite(fitted.offset)
        ):
            raise ValueError(f"calibration must be a positive scale and an offset, got {calibration!r:.40}")
        return cls(network, coding, names, fitted)

    @property
    def _is_softmax(self) -> bool:
        return type(self.network.architecture.head).__name__ == "SoftmaxHead"

    def _scores(self, X: Matrix) -> NDArray[np.float64]:
        """z of signs, log P of a softmax, [N, n_L]."""
        scores = self.network.predict_scores(self.coding.transform(X), dtype=np.float64)
        return np.log(np.maximum(scores, np.finfo(np.float64).tiny)) if self._is_softmax else scores


def _variables(network: EBPNetwork) -> dict[str, tf.Variable]:
    """All numbers of the posterior by name."""
    parts = {"h": network.h, "b": network.b}
    return {f"{name}_{layer}": value for name, values in parts.items() for layer, value in enumerate(values, 1)}


def _check_sizes(sizes: object, arrays: Mapping[str, np.ndarray]) -> None:
    """Before there is room made for them."""
    if not isinstance(sizes, list) or len(sizes) < 2 or not all(isinstance(n, int) and n > 0 for n in sizes):
        raise ValueError("layer_sizes must list at least two positive numbers")
    for layer, shape in enumerate(itertools.pairwise(sizes), start=1):
        if arrays[f"h_{layer}"].shape != shape or arrays[f"h_{layer}"].dtype.kind != "f":
            raise ValueError(f"h_{layer} must be {shape}, got {arrays[f'h_{layer}'].shape}")

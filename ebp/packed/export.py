"""Networks of binary weights as files of packed bits, for `ebp.PackedNetwork` and `ebp.export_c`.

export_checked(classifier, "net.ebp", X_test, y_test)      # an EBPClassifier: its coding and classes are in the file
export_network(network, "net.ebp", coding=coding)          # the most probable weights, or draws that vote
export_packed(Weights(signs, biases), "net.ebp")           # signs [n_in, n_out] of -1 and +1, real biases [n_out]
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from gpflow_deep_base.files import atomic_path, write_bytes

from ..network.coding import FRACTION_BITS, InputCoding, Matrix, common_fraction_bits
from ..network.convolution import check_whole
from .packed import PackedNetwork
from .packed_file import MAX_FRACTION_BITS, parse
from .packed_write import Weights, content_of

if TYPE_CHECKING:
    from ..network.network import EBPNetwork

#: What has binary weights to export: an `EBPNetwork`, or a fitted `EBPClassifier`, of which this floor knows nothing.
Model: TypeAlias = Any

__all__ = ["Exported", "Weights", "export_checked", "export_network", "export_packed", "packed", "print_look"]

#: Numbers of votes that are tried; 0: the most probable weights.
AUTO_VOTES = (0, 5, 11)

#: Part of the rows whose loss is worth a larger file, or a warning.
MATERIAL_LOSS = 0.005


def export_packed(
    networks: Weights | Sequence[Weights],
    path: str | os.PathLike[str],
    *,
    fraction_bits: int | None = None,
    coding: InputCoding | None = None,
    classes: ArrayLike | None = None,
) -> int:
    """Write one network, or several of the same shape that vote, to a file: all of it or nothing.

    :param networks: one, or for a vote several draws from the posterior of the weights.
    :param fraction_bits: None if the inputs are -1 and +1; e >= 0 if they are multiples of 2^-e. A coding other than
        "raw" decides it.
    :param coding: what makes these inputs of raw ones; the file then takes raw inputs.
    :param classes: names of the classes [C]: texts, whole numbers, numbers or truth values.
    :return: size of the file in bytes: about one bit for each weight.
    :raises ValueError: if a weight is not -1 or +1, a bias is not finite, shapes, coding or classes do not fit, or
        `fraction_bits` is not in [0, 24].
    :raises OSError: if the file cannot be written; one that was there before is untouched.
    """
    content = _content([networks] if isinstance(networks, Weights) else networks, fraction_bits, coding, classes)
    write_bytes(path, content)
    return len(content)


def export_network(
    network: Model,
    path: str | os.PathLike[str],
    *,
    fraction_bits: int | None = None,
    coding: InputCoding | None = None,
    classes: ArrayLike | None = None,
    num_votes: int = 0,
    seed: int = 0,
    X: Matrix = None,
    y: ArrayLike | None = None,
) -> int:
    """Write an `EBPNetwork` of binary weights, or a fitted `EBPClassifier`, to a file.

    Given rows, it prints how many of them `predict` and the file have right; `export_checked` chooses by that, too.

    :param network: the trained network; of a classifier, its coding and classes go into the file.
    :param fraction_bits: None if its inputs are -1 and +1; e >= 0 if they are multiples of 2^-e. A coding other than
        "raw" decides it.
    :param coding: what makes these inputs of raw ones.
    :param classes: names of the classes.
    :param num_votes: 0: the network of the most probable weights, EBP-D; k: k networks drawn from the posterior, whose
        vote tends to EBP-P with k. Their biases are drawn, too.
    :param seed: of the draws; `network.vote(X, k, seed)` is the same vote.
    :param X: rows to look at, as for `export_checked`; None: none.
    :param y: their labels, likewise; None: not known.
    :return: size of the file in bytes.
    :raises ValueError: if `network` is anything else, is for regression or has other weights than binary ones, or an
        argument is out of range.
    """
    content = _network_content(network, fraction_bits, coding, classes, num_votes, seed)
    write_bytes(path, content)
    if X is not None:
        file = PackedNetwork(parse(content, Path(path)))
        print_look(network, file, X, y, coding=coding, classes=classes, num_votes=num_votes)
    return len(content)


def packed(network: Model, **options: Any) -> PackedNetwork:
    """The network that a file of `export_network` holds, without the file; options are parameters of that."""
    return PackedNetwork(parse(_network_content(network, **options), Path("the network")))


class Exported(NamedTuple):
    """What was written, and how it predicts.

    :ivar num_bytes: size of the file.
    :ivar float_bytes: size of the same weights and biases as float32 numbers.
    :ivar num_rows: rows that were looked at.
    :ivar num_votes: 0: the file holds the most probable weights; k: k networks that vote.
    :ivar agreement: share of the rows that have the label of `predict`.
    :ivar content: what the file holds, in words; "": as `num_votes` says.
    :ivar accuracy: share of the rows that have the right label; None if labels were not given.
    :ivar accuracy_of_predict: the same of `predict`.
    """

    num_bytes: int
    float_bytes: int
    num_rows: int
    num_votes: int
    agreement: float
    content: str = ""
    accuracy: float | None = None
    accuracy_of_predict: float | None = None

    @classmethod
    def of(
        cls,
        labels: np.ndarray,
        model_labels: np.ndarray,
        y: ArrayLike | None,
        *,
        num_bytes: int,
        float_bytes: int,
        num_votes: int = 0,
        content: str = "",
    ) -> Exported:
        """By the labels of the file and those of `predict`, [N] each, beside the right ones `y`, if these are known."""
        shares = [None if y is None else float(np.mean(found == np.asarray(y))) for found in (labels, model_labels)]
        agreement = float(np.mean(labels == model_labels))
        return cls(num_bytes, float_bytes, len(labels), num_votes, agreement, content, *shares)

    @property
    def summary(self) -> str:
        """All of it in words."""
        ratio = self.float_bytes / self.num_bytes
        content = f"{self.num_votes} networks that vote" if self.num_votes else "the most probable weights"
        content = self.content or content
        rows = f"all {self.num_rows}" if self.agreement == 1.0 else f"{100.0 * self.agreement:.1f} % of {self.num_rows}"
        text = (
            f"{self.num_bytes} bytes, {ratio:.1f} times less than float32; {content}, with the label of predict in "
            f"{rows} rows"
        )
        if self.accuracy is None or self.accuracy_of_predict is None:
            return text
        return f"{text}; {100.0 * self.accuracy:.1f} % right, predict {100.0 * self.accuracy_of_predict:.1f} %"

    @property
    def caution(self) -> str | None:
        """What is lost, if it is more than half a percent of the rows and more than its standard error; or None."""
        if self.accuracy is None or self.accuracy_of_predict is None:
            # Labels that differ may be wrong or right; at most so many are lost.
            loss = 1.0 - self.agreement
            text = f"other labels than predict in {100.0 * (1.0 - self.agreement):.1f} %"
            text = f"{text} of {self.num_rows} rows (give y to see how many are wrong)"
        else:
            loss = self.accuracy_of_predict - self.accuracy
            text = (
                f"{100.0 * self.accuracy:.1f} % of {self.num_rows} rows right, where predict has "
                f"{100.0 * self.accuracy_of_predict:.1f} %"
            )
        # The mean of losses -1, 0 and 1 is beyond its standard error where the square of their sum is beyond the number
        # of those that are not 0, which at most so many are as labels differ.
        lost = round(loss * self.num_rows)
        if lost <= MATERIAL_LOSS * self.num_rows or lost**2 <= round((1.0 - self.agreement) * self.num_rows):
            return None
        if self.content:
            return f"the file has {text}. Give more bits, or more rows X to round by."
        return (
            f"the file has {text}. Learn with more hidden units, and judge the network by what is exported: "
            "EBPClassifier(output='deterministic'); for C, ebp.export_c of an EBPGaussianClassifier loses less."
        )


def export_checked(
    network: Model,
    path: str | os.PathLike[str],
    X: Matrix,
    y: ArrayLike | None = None,
    *,
    fraction_bits: int | None = None,
    coding: InputCoding | None = None,
    classes: ArrayLike | None = None,
    num_votes: int | Literal["auto"] = "auto",
    seed: int = 0,
    chosen_by: Matrix = None,
) -> Exported:
    """As `export_network`, with a look at what the file predicts.

    A network is judged by `predict`, which averages over all of the posterior (EBP-P), and a file holds its most
    probable weights (EBP-D) or a few draws. The file gets its name only if it gives the outputs of these on all of `X`,
    bit for bit; how many labels of `predict` it has, and how many right ones, is in what is returned. If it loses much,
    a warning says so. The folder of the file is made if there is none.

    :param X: rows to look at, [N, n_in]: inputs of the network, -1 and +1 or multiples of 2^-fraction_bits, which are
        coded already; of a classifier, raw inputs.
    :param y: their labels, [N]: names if the file has `classes`, else -1 and +1 or numbers; None: not known.
    :param num_votes: as in `export_network`. "auto": the most probable weights, 5 votes or 11, namely the smallest file
        that has at most half a percent fewer labels of `predict` than the best; of a classifier with another `output`,
        what that says.
    :param chosen_by: rows by which "auto" chooses, such as the training rows, without labels; None: X.
    :raises ValueError: if outputs differ; others as for `export_network`.
    """
    model = network
    X = _as_rows(X)
    rows = X if chosen_by is None else _as_rows(chosen_by)
    if not X.shape[0] or not rows.shape[0]:
        raise ValueError("X and chosen_by must have at least one row to look at, got none.")
    # Inputs as the network takes them: those of a classifier are raw.
    network, coding, classes = _parts(model, coding, classes)
    coded = X
    coded_rows = rows
    if model is not network and coding is not None:
        coded = coding.transform(X)
        coded_rows = coding.transform(rows)
        if coding.kind == "raw" and fraction_bits is None:
            fraction_bits = common_fraction_bits(coded, coded_rows)
    check_label_rows(y, X, known_labels(network, classes))
    options: dict[str, Any] = {"fraction_bits": fraction_bits, "coding": coding, "classes": classes}
    # The smallest file that has nearly as many labels of `predict` as the best one.
    ways = _ways(model, seed) if num_votes == "auto" else [(num_votes, seed)]
    num_votes, seed = ways[0]
    if len(ways) > 1:
        model_labels = _labels(model, rows, classes)
        files = [packed(network, num_votes=votes, seed=draw_seed, **options) for votes, draw_seed in ways]
        shares = [float(np.mean(file.predict(coded_rows, is_coded=True) == model_labels)) for file in files]
        num_votes, seed = next(
            way for way, share in zip(ways, shares, strict=True) if share >= max(shares) - MATERIAL_LOSS
        )
    # Written, read back, and compared before the file gets its name.
    with atomic_path(path) as temporary:
        export_network(network, temporary, num_votes=num_votes, seed=seed, **options)
        file = PackedNetwork.load(temporary)
        _check_outputs(file, network, coded, num_votes, seed)
        exported = _looked_at(model, file, X, coded, y, classes, num_votes)
    if exported.caution is not None:
        warnings.warn(exported.caution, stacklevel=2)
    return exported


def print_look(
    model: Model,
    file: PackedNetwork,
    X: Matrix,
    y: ArrayLike | None = None,
    *,
    coding: InputCoding | None = None,
    classes: ArrayLike | None = None,
    num_votes: int = 0,
) -> None:
    """Print how the file predicts beside `predict`, and warn if much is lost; parameters as for `export_checked`.

    :param file: what was written of `model`.
    """
    network, coding, classes = _parts(model, coding, classes)
    X = _as_rows(X)
    check_label_rows(y, X, known_labels(network, classes))
    coded = X if model is network or coding is None else coding.transform(X)
    say(_looked_at(model, file, X, coded, y, classes, num_votes))


def say(exported: Exported) -> None:
    """Print what was written, and warn of what is lost, at the line that called the function that exports."""
    print(exported.summary, flush=True)
    if exported.caution is not None:
        warnings.warn(exported.caution, stacklevel=4)


def _as_rows(X: Matrix) -> Matrix:
    return X if hasattr(X, "shape") else np.asarray(X)


def _looked_at(
    model: Model,
    file: PackedNetwork,
    X: Matrix,
    coded: Matrix,
    y: ArrayLike | None,
    classes: ArrayLike | None,
    num_votes: int,
) -> Exported:
    """What a file predicts beside `predict`.

    :param X: rows as `predict` takes them.
    :param coded: the same, coded.
    """
    network, _, _ = _parts(model, None, None)
    num_floats = file.num_networks * sum(int(np.prod(v.shape)) for v in (*network.h, *network.b))
    labels = file.predict(coded, is_coded=True)
    model_labels = _labels(model, X, classes)
    return Exported.of(
        labels, model_labels, y, num_bytes=file.num_bytes, float_bytes=4 * num_floats, num_votes=num_votes
    )


def known_labels(network: EBPNetwork, classes: ArrayLike | None) -> list[object]:
    """The labels that a file can give."""
    if classes is not None:
        return np.asarray(classes).tolist()
    num_outputs = network.layer_sizes[-1]
    return [-1, 1] if num_outputs == 1 else [*range(num_outputs)]


def check_label_rows(y: ArrayLike | None, X: Matrix, known: Sequence[object]) -> None:
    """Raises ValueError if labels are not one for each row, or none of them is one that the file can give."""
    if y is None:
        return
    if np.shape(y) != (X.shape[0],):
        raise ValueError(f"y must hold a label for each of {X.shape[0]} rows, got shape {list(np.shape(y))}.")
    if not set(known) & set(np.asarray(y).tolist()):
        raise ValueError(
            f"y must hold labels as the file gives them, {', '.join(map(repr, known[:3]))}, ..., got "
            f"{np.asarray(y).tolist()[0]!r}; give classes, or y in their names."
        )


def _ways(model: Model, seed: int) -> list[tuple[int, int]]:
    """Numbers of votes and seeds of the draws that are tried, the smallest file first."""
    output = getattr(model, "output", "probabilistic")
    if output == "deterministic":
        return [(0, seed)]
    if output == "vote":
        return [(int(model.num_votes), model._seed)]
    return [(votes, seed) for votes in AUTO_VOTES]


def _labels(model: Model, X: Matrix, classes: ArrayLike | None) -> np.ndarray:
    """What `predict` gives for rows, in the file's names of the classes, [N]."""
    if hasattr(model, "coding_"):
        return np.asarray(classes)[np.searchsorted(model.classes_, model.predict(X))]
    decided = model.predict_probabilistic(X)
    if classes is None:
        return np.asarray(decided)
    return np.asarray(classes)[(decided > 0).astype(int) if model.layer_sizes[-1] == 1 else decided]


def _check_outputs(file: PackedNetwork, network: EBPNetwork, X: Matrix, num_votes: int, seed: int) -> None:
    # A vote is compared by its shares, single weights by u of the last layer.
    if num_votes:
        file_output = file.vote(X, is_coded=True)
        network_output = network.vote(X, num_votes, seed)
    else:
        file_output = file.scores(X, is_coded=True) / math.sqrt(network.architecture.fan_ins[-1])
        network_output = network.deterministic_scores(X)
    num_different = int(np.sum(np.any(file_output != network_output, axis=1)))
    if num_different:
        raise ValueError(
            f"the packed network must give the outputs of the float network, but {num_different} of {len(file_output)} "
            "rows differ: the inputs are too large for exact sums; use dtype=float64 or another input coding."
        )


def _parts(
    model: Model, coding: InputCoding | None, classes: ArrayLike | None
) -> tuple[EBPNetwork, InputCoding | None, ArrayLike | None]:
    """Network, coding and classes of an `EBPClassifier`, or as they are given."""
    # A classifier brings coding and classes; a network has those that are given.
    network = model
    if hasattr(model, "coding_"):
        if coding is not None:
            raise ValueError("coding must not be given with a classifier, which has learned its own; leave it out.")
        network = model.network_
        coding = model.coding_
        classes = model.classes_ if classes is None else classes
    if not hasattr(network, "mode_weights"):
        raise ValueError(
            f"network must be an EBPNetwork or a fitted EBPClassifier, got {model!r}; an EBPGaussianClassifier is "
            "written by ebp.export_c."
        )
    if not network.architecture.head.has_labels:
        raise ValueError(f"network must be one for classes, got one with the head {network.architecture.head}.")
    return network, coding, classes


def _draws(network: EBPNetwork, num_votes: int, seed: int) -> list[Weights]:
    """The most probable weights, or draws."""
    if check_whole("num_votes", num_votes, 0) == 0:
        draws = [network.mode_weights()]
    else:
        import tensorflow as tf

        from gpflow_deep_base.seeds import as_seed

        draws = [network.sample_weights(tf.random.fold_in(as_seed(seed), i)) for i in range(num_votes)]
    convolutions = network.architecture.convolutions
    return [Weights([w for w, _ in layers], [b for _, b in layers], convolutions) for layers in draws]


def _network_content(
    network: Model,
    fraction_bits: int | None = None,
    coding: InputCoding | None = None,
    classes: ArrayLike | None = None,
    num_votes: int = 0,
    seed: int = 0,
) -> bytes:
    """The file of `export_network`."""
    network, coding, classes = _parts(network, coding, classes)
    return _content(_draws(network, num_votes, seed), fraction_bits, coding, classes)


def _content(
    networks: Sequence[Weights], fraction_bits: int | None, coding: InputCoding | None, classes: ArrayLike | None
) -> bytes:
    if not networks:
        raise ValueError("export_packed needs at least one network, got none; give Weights(signs, biases).")
    if coding is not None and coding.kind != "raw":
        fraction_bits = None if coding.kind == "sign" else FRACTION_BITS
    if fraction_bits not in (None, *range(MAX_FRACTION_BITS + 1)):
        raise ValueError(f"fraction_bits must be None or from 0 to {MAX_FRACTION_BITS}, got {fraction_bits!r}.")
    return content_of(networks, None if fraction_bits is None else int(fraction_bits), coding, classes)

"""From a Bayesian network to files: prune, shrink, round, write, read again; and the error of each stage.

    packed = pack_files(model, parts, PackConfig(), "files")
    print(packed.networks["search"].test_percent, packed.networks["search"].bytes)

Thresholds, bits and codebooks are chosen on the part "valid"; "test" is looked at once for each network that is
reported: the masked Bayesian one, and what comes back from the files of the shrunk one and its rounded versions.
"""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from gpflow_deep_base.seeds import named_seed

from ..graph.graph import kernel_variables
from ..graph.rebuild import copy_of
from ..graph.removal.shrink import shrink_details
from ..graph.sizes import Size, size_of
from ..layers.posterior import bayesian_layers
from ..layers.scales import PerWeight
from ..layers.thresholds import Thresholds, switched_off, thresholds_of
from ..rounding.bits import FixedPoint, fixed_point, layer_bits, search_bits
from ..rounding.codebook import Codebook, codebook, fine_tune
from ..rounding.rate_rounding import rate_search
from ..rounding.rates import Rates, file_rate, paper_rates
from ..train.recipes.classification import Examples, Parts, error_percent, has_probabilities, nll, parts_of
from .container import Kernel, check_storable, kernels_of, save_bcz
from .contents import load_own

__all__ = [
    "PackConfig",
    "Packed",
    "PackedNetwork",
    "error_of_kernels",
    "pack_files",
    "rounding_error",
    "tuned_codebooks",
]


@dataclass(frozen=True)
class PackConfig:
    """Which files to write of a network.

    :param bits: significant bits of fixed-point numbers by the rule of the paper, or also a search for fewer of them.
    :param tolerance: percent of error on examples set aside that the search for bits may add.
    :param codebooks: sizes of codebooks to write files with.
    :param rate_codebooks: sizes of codebooks whose weights are rounded by bits and posterior variances, as coarsely as
        --tolerance allows after --tune_steps.
    :param tune_steps: minibatches to fine-tune the centres of codebooks on.
    """

    bits: Literal["rule", "search"] = "search"
    tolerance: float = 0.1
    codebooks: tuple[int, ...] = (32, 16)
    rate_codebooks: tuple[int, ...] = ()
    tune_steps: int = 0

    def __post_init__(self) -> None:
        if self.bits not in ("rule", "search"):
            raise ValueError(f"bits must be rule or search, got {self.bits!r}.")
        if not 0 <= self.tolerance < float("inf"):
            raise ValueError(f"tolerance must be finite and at least 0, got {self.tolerance}.")
        # Sizes of codebooks, each once; one by rates has 0 and another value at least.
        for name, minimum in (("codebooks", 1), ("rate_codebooks", 2)):
            books = getattr(self, name)
            if not all(minimum <= k <= 256 for k in books) or len(set(books)) < len(books):
                numbers = ",".join(map(str, books))
                raise ValueError(f"{name} must list different numbers from {minimum} to 256, got {numbers}.")
        if self.tune_steps < 0:
            raise ValueError(f"tune_steps must be at least 0, got {self.tune_steps}.")

    def check(self, model: keras.Model) -> None:
        """Refuse a plain network that could be trained, but not written: ValueError with the layer no file can hold."""
        check_storable(model)


class PackedNetwork(NamedTuple):
    """A network that came out; the plain one before and the masked one have no file.

    :ivar valid_percent: error on the part "valid".
    :ivar test_percent: on "test".
    :ivar file: what was read again before it was measured.
    :ivar bytes: its size.
    :ivar file_rate: how many times smaller the file is than the original network in float32, biases included.
    """

    valid_percent: float
    test_percent: float
    file: Path | None = None
    bytes: int | None = None
    file_rate: float | None = None


class Packed(NamedTuple):
    """What :func:`pack_files` found, with one entry for each of the L kernels in order where there are several.

    :ivar networks: "plain" if that was given, "masked", "shrunk", "rule", "search" if that was wanted, "book K" and
        "rate K".
    :ivar model: the plain network that is left, in float32.
    :ivar architecture: kept filters of convolutions and kept inputs of dense layers, as in Table 1.
    :ivar kept_weights: weights left in each layer, without biases.
    :ivar original: size of the network before.
    :ivar thresholds: by name of layer.
    :ivar scores: by name of layer, what was compared with them.
    :ivar variances: posterior variances of the weights that are left and not 0, a vector for each layer.
    :ivar codes: rounded kernels by "rule" and "search".
    :ivar chosen: the one of these two that is in fixed.bcz.
    :ivar rates: as the paper counts them, by "rule" and "search".
    """

    networks: dict[str, PackedNetwork]
    model: keras.Model
    architecture: tuple[int, ...]
    kept_weights: tuple[int, ...]
    original: Size
    thresholds: dict[str, float]
    scores: dict[str, NDArray[np.float32]]
    variances: list[NDArray[np.float32]]
    codes: dict[str, list[FixedPoint]]
    chosen: str
    rates: dict[str, Rates]

    @property
    def bits(self) -> dict[str, list[int]]:
        """All bits of a weight of each layer, with sign and exponent, by "rule" and "search"."""
        return {name: [code.bits for code in codes] for name, codes in self.codes.items()}


def pack_files(
    model: keras.Model,
    parts: Parts,
    config: PackConfig,
    folder: str | os.PathLike[str],
    *,
    thresholds: Thresholds = "auto",
    original: Size | None = None,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    train_last: Callable[[keras.Model], None] | None = None,
    plain: PackedNetwork | None = None,
    seed: int = 0,
) -> Packed:
    """Write a Bayesian network in as few bytes as it needs; it stays as it is.

    :param parts: see :data:`compression.train.recipes.classification.Parts`.
    :param folder: gets shrunk.bcz (float32), fixed.bcz (fixed point; fixed_rule.bcz the rule's if bits are searched),
        book_K.bcz (codebooks of K centres) and rate_K.bcz (the same by :func:`rate_search`), all entropy-coded; made if
        it is missing.
    :param thresholds: as in :func:`compression.layers.thresholds.masks`.
    :param original: size of the network that is compared with; that of `model` if not given.
    :param batch_size: of the minibatches for fine-tuning codebooks.
    :param learning_rate: that of the network; the centres of codebooks take a tenth of it.
    :param train_last: trains the plain network that is left, before it is rounded.
    :param plain: errors of the network before, to report beside the others.
    :param seed: of k-means and of the minibatches for fine-tuning.
    :raises ValueError: if a layer is pruned to nothing, or the network has a layer that no file can hold.
    """
    examples = parts_of(parts)
    place = Path(folder)
    chosen = thresholds_of(model, thresholds)
    size = size_of(model) if original is None else original
    place.mkdir(parents=True, exist_ok=True)
    networks = {} if plain is None else {"plain": plain}
    # The Bayesian network with masked groups, then the plain one that computes the same.
    with switched_off(model, chosen):
        networks["masked"] = _measured(model, examples)
    shrunk = shrink_details(model, chosen)
    if train_last is not None:
        train_last(shrunk.model)
    kernels = kernels_of(shrunk.model)
    variances = [variance[kernel != 0] for variance, kernel in zip(shrunk.variances, kernels, strict=True)]

    def write(name: str, file: str, codes: Sequence[Kernel] | None) -> None:
        networks[name] = _written(place / file, shrunk.model, codes, examples, size)

    write("shrunk", "shrunk.bcz", None)
    # Fixed-point numbers: by the rule of the paper, and with as few bits as the error allows.
    max_error = networks["shrunk"].valid_percent + config.tolerance
    codes = _fixed_points(shrunk.model, variances, examples["valid"], config, max_error)
    for name, points in codes.items():
        write(name, "fixed.bcz" if name == config.bits else f"fixed_{name}.bcz", points)
    # Codebooks by k-means, then those that count bits, with centres that are trained.
    tuned = functools.partial(
        tuned_codebooks,
        shrunk.model,
        part=examples["train"],
        steps=config.tune_steps,
        batch_size=batch_size,
        learning_rate=0.1 * learning_rate,
        seed=seed,
    )
    for k in config.codebooks:
        books = [codebook(kernel, k, seed=seed) for kernel in kernels]
        write(f"book {k}", f"book_{k}.bcz", tuned(books, name=f"books/{k}"))
    for k in config.rate_codebooks:
        rate_books = rate_search(
            kernels,
            shrunk.variances,
            k,
            rounding_error(shrunk.model, examples["valid"]),
            max_error=max_error + 1e-9,
            tuned=functools.partial(tuned, name=f"rate/{k}"),
            seed=seed,
        )
        write(f"rate {k}", f"rate_{k}.bcz", rate_books)
    # With a prior on each weight the indices of what is left count, too.
    is_by_weight = any(isinstance(layer, PerWeight) for layer in bayesian_layers(model))
    columns = [kernel.shape[-1] for kernel in kernels] if is_by_weight else None
    return Packed(
        networks=networks,
        model=shrunk.model,
        architecture=shrunk.architecture,
        kept_weights=shrunk.kept_weights,
        original=size,
        thresholds=chosen,
        scores={layer.name: np.asarray(layer.prune_scores()) for layer in bayesian_layers(model)},
        variances=variances,
        codes=codes,
        chosen=config.bits,
        rates={
            name: paper_rates(size.weights, shrunk.kept_weights, [code.bits for code in points], csc_columns=columns)
            for name, points in codes.items()
        },
    )


def rounding_error(model: keras.Model, part: Examples) -> Callable[[Sequence[Kernel]], float]:
    """A function of rounded kernels of a plain network: its error with them, in percent."""
    return error_of_kernels(copy_of(model), lambda network: error_percent(network, part))


def error_of_kernels(copy: keras.Model, error: Callable[[keras.Model], float]) -> Callable[[Sequence[Kernel]], float]:
    """A function of rounded kernels of a plain network: its error with them. They are assigned to `copy`."""
    variables = [variable for _, variable in kernel_variables(copy)]

    def error_of(kernels: Sequence[Kernel]) -> float:
        for variable, kernel in zip(variables, kernels, strict=True):
            variable.assign(kernel.values)
        return error(copy)

    return error_of


def tuned_codebooks(
    model: keras.Model,
    books: list[Codebook],
    part: Examples,
    *,
    name: str,
    steps: int,
    batch_size: int = 128,
    learning_rate: float = 1e-4,
    seed: int = 0,
) -> list[Codebook]:
    """Codebooks of the layers of a plain network with centres that were trained on `steps` minibatches of `part`.

    :param name: tells minibatches apart, whose rows are drawn with replacement.
    :param seed: of the minibatches.
    """
    if steps == 0:
        return books
    # Rows of a step are a function of seed, name and number.
    minibatches = named_seed(seed, name)
    probabilities = has_probabilities(model)
    index = {id(variable): i for i, (_, variable) in enumerate(kernel_variables(model))}
    trainable = model.trainable_variables
    others = model.non_trainable_variables

    def loss_of(kernels: list[tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        # Rows of the step, and the network with these kernels in place of its own.
        draw = tf.random.fold_in(minibatches, step)
        rows = tf.random.stateless_uniform([batch_size], draw, 0, len(part.X), tf.int32)
        values = [kernels[index[id(v)]] if id(v) in index else v.value for v in trainable]
        outputs, _ = model.stateless_call(values, others, tf.gather(part.X, rows), training=False)
        return nll(outputs, tf.gather(part.labels, rows), probabilities=probabilities)

    return fine_tune(books, loss_of, steps=steps, learning_rate=learning_rate)


def _fixed_points(
    model: keras.Model, variances: Sequence[np.ndarray], valid: Examples, config: PackConfig, most: float
) -> dict[str, list[FixedPoint]]:
    """Kernels of a plain network by the rule and, if wanted, with fewer bits up to the error `most` in percent."""
    kernels = kernels_of(model)
    # Secs. 4.1 and 5.2: bits by the posterior variances of the weights that are left.
    rule = layer_bits(variances)
    codes = {"rule": [fixed_point(kernel, t) for kernel, t in zip(kernels, rule, strict=True)]}
    if config.bits == "search":
        error_of = rounding_error(model, valid)
        codes["search"] = search_bits(kernels, error_of, start=rule, max_error=most + 1e-9)
    return codes


def _measured(model: keras.Model, parts: Mapping[str, Examples]) -> PackedNetwork:
    return PackedNetwork(error_percent(model, parts["valid"]), error_percent(model, parts["test"]))


def _written(
    path: Path, model: keras.Model, codes: Sequence[Kernel] | None, parts: Mapping[str, Examples], original: Size
) -> PackedNetwork:
    """Write a network with these kernels, and float16 biases if they are rounded; measure what the file gives back."""
    # Written, then read again: that is what is measured.
    biases = "float32" if codes is None else "float16"
    size = save_bcz(model, path, codes, biases=biases)
    loaded = load_own(path)
    rate = file_rate(original.parameters, path)
    return _measured(loaded, parts)._replace(file=path, bytes=size, file_rate=rate)

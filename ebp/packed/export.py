"""Networks of binary weights as files of packed bits, for `ebp.PackedNetwork` and `ebp.export_c`.

export_checked("net.ebp", classifier, X_test)              # an EBPClassifier: its coding and classes are in the file
export_network("net.ebp", network, coding=coding)          # the most probable weights, or draws that vote
export_packed("net.ebp", Weights(signs, biases))           # signs [n_in, n_out] of -1 and +1, real biases [n_out]
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..network.coding import FRACTION_BITS, InputCoding, common_fraction_bits
from .packed import PackedNetwork
from .packed_file import parse
from .packed_write import Weights, content_of, whole_file, write

__all__ = ["Exported", "Weights", "export_checked", "export_network", "export_packed", "packed"]


def export_packed(
    path: str | os.PathLike[str],
    *networks: Weights,
    fraction_bits: int | None = None,
    coding: InputCoding | None = None,
    classes: Any = None,
) -> int:
    """Write one network, or several of the same shape that vote, to a file: all of it or nothing.

    :param networks: for a vote, draws from the posterior of the weights.
    :param fraction_bits: None if the inputs are -1 and +1; e >= 0 if they are multiples of 2^-e. A coding other than
        "raw" decides it.
    :param coding: what makes these inputs of raw ones; the file then takes raw inputs.
    :param classes: names of the classes [C]: texts, whole numbers, numbers or truth values.
    :return: size of the file in bytes: about one bit for each weight.
    :raises ValueError: if a weight is not -1 or +1, a bias is not finite, shapes, coding or classes do not fit, or
        `fraction_bits` is not in [0, 24].
    :raises OSError: if the file cannot be written; one that was there before is untouched.
    """
    content = _content(networks, fraction_bits, coding, classes)
    write(Path(path), content)
    return len(content)


def export_network(
    path: str | os.PathLike[str],
    network: Any,
    *,
    fraction_bits: int | None = None,
    coding: InputCoding | None = None,
    classes: Any = None,
    num_votes: int = 0,
    seed: int = 0,
) -> int:
    """Write an `EBPNetwork` of binary weights, or a fitted `EBPClassifier`, to a file.

    :param network: the trained network; of a classifier, its coding and classes go into the file.
    :param fraction_bits: None if its inputs are -1 and +1; e >= 0 if they are multiples of 2^-e. A coding other than
        "raw" decides it.
    :param coding: what makes these inputs of raw ones.
    :param classes: names of the classes.
    :param num_votes: 0: the network of the most probable weights, EBP-D; k: k networks drawn from the posterior, whose
        vote tends to EBP-P with k. Their biases are drawn, too.
    :param seed: of the draws; `network.vote(X, k, seed)` is the same vote.
    :return: size of the file in bytes.
    :raises ValueError: if not all weights are binary, or an argument is out of range.
    """
    content = _network_content(network, fraction_bits, coding, classes, num_votes, seed)
    write(Path(path), content)
    return len(content)


def packed(network: Any, **options: Any) -> PackedNetwork:
    """The network that a file of `export_network` holds, without the file; options are parameters of that."""
    return PackedNetwork(parse(_network_content(network, **options), Path("the network")))


class Exported(NamedTuple):
    """What `export_checked` wrote.

    :ivar num_bytes: size of the file.
    :ivar float_bytes: size of the same weights and biases as float32 numbers.
    :ivar num_rows: inputs on which the file gives the outputs of the float network.
    """

    num_bytes: int
    float_bytes: int
    num_rows: int

    @property
    def summary(self) -> str:
        """The three numbers in words."""
        ratio = self.float_bytes / self.num_bytes
        return f"{self.num_bytes} bytes, {ratio:.1f} times less than float32; the same outputs on {self.num_rows} rows"


def export_checked(
    path: str | os.PathLike[str],
    network: Any,
    X: Any,
    *,
    fraction_bits: int | None = None,
    coding: InputCoding | None = None,
    classes: Any = None,
    num_votes: int = 0,
    seed: int = 0,
) -> Exported:
    """As `export_network`; the file gets its name only if it gives the outputs of the float network on all of `X`.

    The folder of the file is made if there is none.

    :param X: rows to check by, [N, n_in]: inputs of the network, -1 and +1 or multiples of 2^-fraction_bits, which are
        coded already; of a classifier, raw inputs.
    :raises ValueError: if outputs differ; others as for `export_network`.
    """
    if hasattr(network, "network_"):
        network, coding, classes = _parts(network, coding, classes)
        assert coding is not None
        X = coding.transform(X)
        fraction_bits = common_fraction_bits(X) if coding.kind == "raw" and fraction_bits is None else fraction_bits
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary:
        size = export_network(
            temporary,
            network,
            fraction_bits=fraction_bits,
            coding=coding,
            classes=classes,
            num_votes=num_votes,
            seed=seed,
        )
        _check_outputs(PackedNetwork.load(temporary), network, X, num_votes, seed)
    num_floats = max(1, num_votes) * sum(int(np.prod(v.shape)) for v in (*network.h, *network.b))
    return Exported(size, 4 * num_floats, X.shape[0])


def _check_outputs(file: PackedNetwork, network: Any, X: Any, num_votes: int, seed: int) -> None:
    if num_votes:
        ours, theirs = file.vote(X, is_coded=True), network.vote(X, num_votes, seed)
    else:
        ours = file.scores(X, is_coded=True) / math.sqrt(network.architecture.fan_ins[-1])
        theirs = network.deterministic_scores(X)
    num_different = int(np.sum(np.any(ours != theirs, axis=1)))
    if num_different:
        raise ValueError(
            f"the packed network must give the outputs of the float network, but {num_different} of {len(ours)} "
            "rows differ: the inputs are too large for exact sums; use dtype=float64 or another input coding."
        )


def _parts(network: Any, coding: InputCoding | None, classes: Any) -> tuple[Any, InputCoding | None, Any]:
    """Network, coding and classes of an `EBPClassifier`, or as they are given."""
    if not hasattr(network, "network_"):
        return network, coding, classes
    if coding is not None:
        raise ValueError("coding must not be given with a classifier, which has learned its own; leave it out.")
    return network.network_, network.coding_, network.classes_ if classes is None else classes


def _draws(network: Any, num_votes: int, seed: int) -> list[Weights]:
    """The most probable weights, or draws."""
    if num_votes < 0:
        raise ValueError(f"num_votes must not be negative, got {num_votes}; 0 exports the most probable weights.")
    if num_votes == 0:
        draws = [network.mode_weights()]
    else:
        import tensorflow as tf

        from ..network.seeds import as_seed

        draws = [network.sample_weights(tf.random.fold_in(as_seed(seed), i)) for i in range(num_votes)]
    convolutions = network.architecture.convolutions
    return [Weights([w for w, _ in layers], [b for _, b in layers], convolutions) for layers in draws]


def _network_content(
    network: Any,
    fraction_bits: int | None = None,
    coding: InputCoding | None = None,
    classes: Any = None,
    num_votes: int = 0,
    seed: int = 0,
) -> bytes:
    """The file of `export_network`."""
    network, coding, classes = _parts(network, coding, classes)
    return _content(_draws(network, num_votes, seed), fraction_bits, coding, classes)


def _content(networks: Sequence[Weights], fraction_bits: int | None, coding: InputCoding | None, classes: Any) -> bytes:
    if not networks:
        raise ValueError("export_packed needs at least one network, got none; give Weights(signs, biases).")
    if coding is not None and coding.kind != "raw":
        fraction_bits = None if coding.kind == "sign" else FRACTION_BITS
    if fraction_bits is not None and not 0 <= int(fraction_bits) <= 24:
        raise ValueError(f"fraction_bits must be None or from 0 to 24, got {fraction_bits}.")
    return content_of(networks, fraction_bits, coding, classes)

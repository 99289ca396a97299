"""Means of several densities of bits, and files of them.

    both = Mixture((chain, model), np.log([0.5, 0.5]))
    both.log_prob(x)                           # log sum_m w_m p_m(x), nats
    save_density(both, "density.npz")
    load_density("density.npz")                # a Chain, a MaskedNetwork, a DARN or a Mixture

A mixture says of missing bits what its members say, each with its weight and the probability of the known bits.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, TypeAlias, Union

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from darn.model.autoregressive import bernoulli_log_prob
from darn.model.categories import are_possible
from darn.model.model import DARN, DARNConfig
from darn.model.serialization import check_parameters, darn_of, named_variables, variable_shapes
from darn.more.chain import Chain, chain_arrays, chain_header, chain_of, chain_shapes
from darn.more.completion import Completed, checked_mask, completed
from darn.more.distribution import log_prob_and_effective, warn_of_few
from darn.more.masked import MaskedNetwork, network_arrays, network_header, network_of, network_shapes
from darn.more.ordered import Ordered, checked_bits
from gpflow_deep_base.files import PathLike
from gpflow_deep_base.seeds import as_seed
from gpflow_deep_base.storage.container import load_container, save_container
from gpflow_deep_base.storage.limits import refuse_damaged

__all__ = [
    "Density",
    "Member",
    "Mixture",
    "completion_of",
    "drawn",
    "load_density",
    "log_prob",
    "log_prob_by_column",
    "log_prob_of_known",
    "member_log_prob",
    "name_of",
    "num_parameters",
    "save_density",
]

Member: TypeAlias = Chain | MaskedNetwork | DARN
Density: TypeAlias = Union[Chain, MaskedNetwork, DARN, "Mixture"]

_KIND = "a saved density of bits"
_VERSION = 1
_BLOCK = 1000  # rows at a time
_DRAWS_BY_COLUMN = 16  # of the stochastic units, to share log p(x) among the columns
_MAX_SUMMED_UNITS = 12  # whose 2^12 states take about as long as 4,000 importance samples
_MAX_MEMBERS = 1024


@dataclass(frozen=True)
class Mixture:
    """sum_m w_m p_m(x).

    :ivar members: chains, networks and DARNs of the same columns.
    :ivar log_weights: log w, [M], whose exponentials sum to 1.
    :raises ValueError: if the members have other columns, or the weights are something else.
    """

    members: tuple[Member, ...]
    log_weights: NDArray[np.float64]

    def __post_init__(self) -> None:
        widths = [_width(member) for member in self.members]
        if len(set(widths)) != 1:
            raise ValueError(f"members of a mixture must have the same columns, got {widths}")
        log_w = self.log_weights
        is_right = np.shape(log_w) == (len(widths),) and np.isfinite(log_w).all()
        if not is_right or abs(np.logaddexp.reduce(log_w)) > 1e-6:
            raise ValueError(
                f"log_weights of a mixture must be logarithms of {len(widths)} numbers that sum to 1, got {log_w}"
            )

    @property
    def num_columns(self) -> int:
        """n."""
        return _width(self.members[0])

    @property
    def num_parameters(self) -> int:
        """Of all members, and their weights."""
        return len(self.members) + sum(num_parameters(member) for member in self.members)

    def log_prob(self, x: ArrayLike, *, num_samples: int = 1000, seed: int = 0) -> NDArray[np.float64]:
        """log p(x) of each row, [N], nats.

        :param x: zeros and ones, [N, n].
        :param num_samples: importance samples of a row, of members with more than 12 stochastic units.
        :param seed: of these.
        :raises ValueError: for another shape or other values.
        """
        by_member = [member_log_prob(member, x, num_samples=num_samples, seed=seed) for member in self.members]
        log_p: NDArray[np.float64] = np.logaddexp.reduce(np.stack(by_member) + self.log_weights[:, None], axis=0)
        return log_p

    def log_prob_by_column(self, x: ArrayLike, *, num_samples: int = 1000, seed: int = 0) -> NDArray[np.float64]:
        """What each column adds to log p(x), [N, n], nats: the mean of what it adds to log p_m(x), by the probability
        of each member given the row. The mean of log p_m(x) is higher than log p(x) by at most log M nats, which all
        columns share alike, so that their sum is log p(x). Parameters and errors as
        :func:`darn.more.mixture.log_prob_by_column`.
        """
        by_member = np.stack(
            [log_prob_by_column(member, x, num_samples=num_samples, seed=seed) for member in self.members]
        )
        # P(member | row).
        log_joint = by_member.sum(axis=2) + self.log_weights[:, None]
        log_p = np.logaddexp.reduce(log_joint, axis=0)
        is_possible = np.isfinite(log_p)
        # Impossible rows: the members' mean, for none of them is more probable.
        shares = np.exp(np.where(is_possible, log_joint - np.where(is_possible, log_p, 0.0), self.log_weights[:, None]))
        with np.errstate(invalid="ignore"):
            terms = np.where(shares[:, :, None] > 0, shares[:, :, None] * by_member, 0.0)
        by_column: NDArray[np.float64] = terms.sum(axis=0)
        # What the mean is too high by, shared by all columns.
        excess = np.where(is_possible, by_column.sum(axis=1) - np.where(is_possible, log_p, 0.0), 0.0)
        return by_column - (excess / self.num_columns)[:, None]

    def sample(self, num: int, seed: int = 0) -> NDArray[np.uint8]:
        """Independent draws of rows, [num, n], each of one of the members.

        :param num: of rows.
        :param seed: the same gives the same rows.
        """
        # First which member each row is of, then the rows of each member with noise of its own.
        rng = np.random.default_rng([seed, 3])
        drawn_of = rng.choice(
            len(self.members), num, p=np.exp(self.log_weights - np.logaddexp.reduce(self.log_weights))
        )
        rows = np.zeros([num, self.num_columns], np.uint8)
        for number, member in enumerate(self.members):
            if count := int(np.sum(drawn_of == number)):
                key = int(np.random.default_rng([seed, 4, number]).integers(2**31 - 1))
                rows[drawn_of == number] = drawn(member, count, key)
        return rows

    def complete(self, x: ArrayLike, is_missing: ArrayLike, *, seed: int = 0, refuses: bool = True) -> Completed:
        """Missing bits given the known ones: the mean of what the members say, weighed by w_m p_m(known bits).

        :param x: [N, n]; what stands where bits are missing does not matter.
        :param is_missing: booleans [N, n].
        :param seed: of draws, where a member's states are too many to be summed.
        :param refuses: raise an error for known bits that no row has; else log p of these is minus infinity.
        :raises ValueError: for another shape or other values, or known bits that no row has.
        """
        mask = checked_mask(x, is_missing)
        rows = checked_bits(np.where(mask, 0, np.asarray(x)), self.num_columns).astype(np.float64)
        log_known = np.zeros(len(rows))
        effective = np.full(len(rows), np.inf)
        lacks = mask.any(axis=1)
        # Rows that lack nothing.
        if not lacks.all():
            log_known[~lacks] = self.log_prob(rows[~lacks])
        # The others: p(x_j = 1 | known) of the members, by w_m p_m(known).
        if lacks.any():
            completions = [
                completion_of(member, rows[lacks], mask[lacks], seed=seed, refuses=refuses) for member in self.members
            ]
            log_joint = np.stack([part.log_known for part in completions]) + self.log_weights[:, None]
            log_known[lacks] = np.logaddexp.reduce(log_joint, axis=0)
            with np.errstate(invalid="ignore"):
                shares = np.exp(log_joint - log_known[lacks])
            rows[lacks] = np.einsum("mn,mnj->nj", shares, np.stack([part.probabilities for part in completions]))
            effective[lacks] = np.min([part.effective for part in completions], axis=0)
        return Completed(rows, log_known, effective)


def member_log_prob(
    member: Member, x: ArrayLike, *, num_samples: int = 1000, seed: int = 0, warns: bool = True
) -> NDArray[np.float64]:
    """log p(x) of one model, [N], nats: exact for at most 12 stochastic units, else by importance sampling.

    :param member: of which model.
    :param x: zeros and ones, [N, n].
    :param num_samples: importance samples of a row.
    :param seed: of these.
    :param warns: say if too few of them count, so that log p is low.
    :raises ValueError: for another shape or other values.
    """
    if isinstance(member, Ordered):
        return member.log_prob(x)
    # A DARN: blocks of rows, whose noise does not depend on the block.
    rows = checked_bits(x, _width(member))
    blocks = [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]
    if not blocks:
        return np.zeros(0)
    estimates = [
        log_prob_and_effective(member, block, num_samples=num_samples, seed=seed, max_exact_units=_MAX_SUMMED_UNITS)
        for block in blocks
    ]
    log_p, effective = (np.concatenate([single.numpy() for single in part]) for part in zip(*estimates, strict=True))
    if warns:
        warn_of_few(effective, num_samples)
    return np.where(are_possible(rows, member.config.categories), log_p.astype(np.float64), -np.inf)


def log_prob(density: Density, x: ArrayLike, *, num_samples: int = 1000, seed: int = 0) -> NDArray[np.float64]:
    """log p(x) of any density, [N], nats. Parameters and errors as :meth:`Mixture.log_prob`.

    :param density: of which model.
    :param x: zeros and ones, [N, n].
    :param num_samples: importance samples of a row.
    :param seed: of these.
    """
    if isinstance(density, Mixture):
        return density.log_prob(x, num_samples=num_samples, seed=seed)
    return member_log_prob(density, x, num_samples=num_samples, seed=seed)


def log_prob_by_column(
    density: Density, x: ArrayLike, *, num_samples: int = 1000, seed: int = 0
) -> NDArray[np.float64]:
    """log p(x_j | the columns before it), [N, n], nats, whose sum over the columns is log p(x).

    Of a DARN with stochastic units it is the mean of log p(x_j | the columns before it, h) over draws of h given the
    row. That is higher than log p(x) by what h carries, which all columns share alike, so that their sum is log p(x).
    Of a mixture, see :meth:`Mixture.log_prob_by_column`.

    :param density: of which model.
    :param x: zeros and ones, [N, n].
    :param num_samples: importance samples of a row, for log p(x) of DARNs with more than 12 stochastic units.
    :param seed: of these.
    :raises ValueError: for another shape or other values, or a DARN whose columns have several orders.
    """
    if isinstance(density, Ordered):
        return density.log_prob_by_column(x)
    if isinstance(density, Mixture):
        return density.log_prob_by_column(x, num_samples=num_samples, seed=seed)
    if density.decoders[0].conditional.is_mixture:
        raise ValueError("log p by column is for densities with one order of the columns, and this one has several.")
    # Of a DARN: the mean over h, and what it is too high by, shared by all columns.
    rows = checked_bits(x, _width(density))
    log_p = member_log_prob(density, rows, num_samples=num_samples, seed=seed)
    blocks = [_means_by_column(density, rows[i : i + _BLOCK], seed) for i in range(0, len(rows), _BLOCK)]
    by_column = np.concatenate([np.zeros(rows[:0].shape), *blocks])
    return by_column + ((log_p - by_column.sum(axis=1)) / rows.shape[1])[:, None]


def log_prob_of_known(
    density: Density, x: ArrayLike, is_missing: NDArray[np.bool_], *, num_samples: int = 1000, seed: int = 0
) -> NDArray[np.float64]:
    """log p(known bits) of each row, [N], nats, as exact as completion is; minus infinity where no row has them.

    :param density: of which model.
    :param x: [N, n]; what stands where bits are missing does not matter.
    :param is_missing: booleans [N, n].
    :param num_samples: importance samples of rows that lack nothing, of DARNs with more than 12 stochastic units.
    :param seed: of draws.
    :raises ValueError: for another shape or other values.
    """
    # Rows that lack nothing by log p itself, the others by the sum that completes them.
    rows = np.where(is_missing, 0, np.asarray(x))
    lacks = is_missing.any(axis=1)
    log_p = np.zeros(len(rows))
    log_p[~lacks] = log_prob(density, rows[~lacks], num_samples=num_samples, seed=seed)
    if lacks.any():
        log_p[lacks] = completion_of(density, rows[lacks], is_missing[lacks], seed=seed, refuses=False).log_known
    return log_p


def completion_of(
    density: Density, x: ArrayLike, is_missing: ArrayLike, *, seed: int = 0, refuses: bool = True
) -> Completed:
    """Missing bits of any density given the known ones. Parameters and errors as :meth:`Mixture.complete`.

    :param density: of which model.
    :param x: [N, n]; what stands where bits are missing does not matter.
    :param is_missing: booleans [N, n].
    :param seed: of draws.
    :param refuses: raise an error for known bits that no row of a chain or a network has.
    """
    if isinstance(density, Ordered | Mixture):
        return density.complete(x, is_missing, seed=seed, refuses=refuses)
    return completed(density, x, is_missing, seed=seed)


def drawn(density: Density, num: int, seed: int) -> NDArray[np.uint8]:
    """Independent draws of rows, [num, n].

    :param density: of which model.
    :param num: of rows.
    :param seed: the same gives the same rows.
    """
    draws = density.sample(num, seed)
    return draws if isinstance(draws, np.ndarray) else np.asarray(draws.x, np.uint8)


def name_of(model: DARN) -> str:
    """What kind of DARN it is, in words."""
    config = model.config
    hidden, units = (", ".join(map(str, sizes)) or "no" for sizes in (config.hidden, config.units))
    kind = f"{config.visible_conditional} decoder"
    return f"DARN, {hidden} stochastic and {units} deterministic units, {kind}"


def num_parameters(density: Density) -> int:
    """Numbers that make the model, but for those that are zero in a chain."""
    if isinstance(density, Ordered | Mixture):
        return density.num_parameters
    return sum(math.prod(variable.shape) for variable in density.trainable_variables)


def save_density(density: Density, path: PathLike) -> None:
    """Write a file that :func:`load_density` reads; it appears under its name only when it is whole.

    :param density: a chain, a network, a DARN or a mixture.
    :param path: of the file; missing folders are made.
    :raises ValueError: if a parameter is not finite.
    :raises OSError: if it cannot be written; what was there before stays.
    """
    members = density.members if isinstance(density, Mixture) else (density,)
    headers: list[dict[str, object]] = []
    arrays: dict[str, np.ndarray] = {}
    # Each member's header, and its arrays under its number.
    for number, member in enumerate(members):
        if isinstance(member, Chain):
            headers.append({"chain": chain_header(member)})
            content = chain_arrays(member)
        elif isinstance(member, MaskedNetwork):
            headers.append({"network": network_header(member)})
            content = network_arrays(member)
        else:
            headers.append({"config": json.loads(member.config.to_json())})
            content = {name: variable.numpy() for name, variable in named_variables(member).items()}
        arrays |= {f"{number}/{name}": array for name, array in content.items()}
    if isinstance(density, Mixture):
        arrays["log_weights"] = np.asarray(density.log_weights, np.float64)
    check_parameters(arrays)
    header = {"members": headers, "is_mixture": isinstance(density, Mixture)}
    save_container(path, kind=_KIND, version=_VERSION, header=header, arrays=arrays)


def load_density(path: PathLike, *, max_bytes: int | None = None) -> Density:
    """Read a file of :func:`save_density`. Nothing is built before the file's arrays are those of its header.

    :param path: of the file.
    :param max_bytes: that its arrays may take; None: 100 MB and three times the file's length.
    :raises ValueError: if it is missing, damaged, another kind of file, or takes more.
    """
    # Members by their numbers, then their weights.
    stored = load_container(path, kind=_KIND, versions=(_VERSION,), expected=_shapes, max_bytes=max_bytes)
    try:
        members: list[Member] = []
        for number, header in enumerate(stored.header["members"]):
            start = f"{number}/"
            arrays = {name.removeprefix(start): a for name, a in stored.arrays.items() if name.startswith(start)}
            members.append(_member(header, arrays))
        if not stored.header["is_mixture"]:
            return members[0]
        if (dtype := stored.arrays["log_weights"].dtype) != np.float64:
            raise ValueError(f"its weights must be of float64, got {dtype}")
        return Mixture(tuple(members), stored.arrays["log_weights"])
    except ValueError as error:
        refuse_damaged(path, _KIND, error)


def _shapes(header: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    members = header.get("members")
    if set(header) != {"members", "is_mixture"} or type(header["is_mixture"]) is not bool:
        raise ValueError("its header must have the members and whether they are a mixture, and nothing else")
    most = _MAX_MEMBERS if header["is_mixture"] else 1
    if not isinstance(members, list) or not 1 <= len(members) <= most:
        raise ValueError(f"its header must have 1 to {most} members")
    # A member's header says of which kind it is.
    shapes: dict[str, tuple[int, ...]] = {}
    for number, member in enumerate(members):
        if not isinstance(member, dict) or len(member) != 1:
            raise ValueError("each member must be a chain, a network or a configuration")
        if isinstance(chain := member.get("chain"), dict):
            member_shapes = chain_shapes(chain)
        elif isinstance(network := member.get("network"), dict):
            member_shapes = network_shapes(network)
        else:
            member_shapes = variable_shapes(_config(member))
        shapes |= {f"{number}/{name}": shape for name, shape in member_shapes.items()}
    return shapes | ({"log_weights": (len(members),)} if header["is_mixture"] else {})


def _means_by_column(model: DARN, rows: NDArray[np.uint8], seed: int) -> NDArray[np.float64]:
    """The mean of log p(x_j | the columns before it, h) over draws of h, [B, n], by their importance weights. A draw
    has the same noise in all rows."""
    x = tf.constant(rows, model.dtype)
    visible = model.decoders[0].conditional
    by_draw: list[NDArray[np.float64]] = []
    log_w: list[NDArray[np.float64]] = []
    for number in range(_DRAWS_BY_COLUMN if model.config.hidden else 1):
        # h ~ q(h | x), and log p(x_j | the columns before it, h).
        noise = model.encoder_noise(1, tf.random.fold_in(as_seed(seed), number))
        encoded = model.encode(x, tuple(tf.tile(layer_noise, [len(rows), 1]) for layer_noise in noise))
        a = visible.logits(x, model.visible_offset(encoded.h)).numpy().astype(np.float64)
        by_draw.append(-np.logaddexp(0.0, np.where(rows > 0, -a, a)))
        log_ratio = np.zeros(len(rows))
        # w = p(x, h) / q(h | x).
        if model.config.hidden:
            log_q = tf.add_n([bernoulli_log_prob(h, b) for h, b in zip(encoded.h, encoded.logits, strict=True)])
            log_ratio = (model.log_prior(encoded.h) - log_q).numpy().astype(np.float64)
        log_w.append(by_draw[-1].sum(axis=1) + log_ratio)
    # The mean over the draws of each row, by their weights.
    weights = np.exp(np.stack(log_w) - np.logaddexp.reduce(np.stack(log_w), axis=0))
    means: NDArray[np.float64] = np.einsum("sb,sbn->bn", weights, np.stack(by_draw))
    return means


def _member(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Member:
    if "chain" in header:
        return chain_of(header["chain"], arrays)
    if "network" in header:
        return network_of(header["network"], arrays)
    return darn_of(_config(header), arrays)


def _config(header: dict[str, Any]) -> DARNConfig:
    if set(header) != {"config"}:
        raise ValueError("each member must be a chain, a network or a configuration")
    return DARNConfig.from_json(json.dumps(header["config"]))


def _width(member: Member) -> int:
    return member.num_columns if isinstance(member, Ordered) else member.config.visible

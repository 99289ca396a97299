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
from numpy.typing import ArrayLike, NDArray

from darn.model.model import DARN, DARNConfig
from darn.model.serialization import check_parameters, darn_of, named_variables
from darn.model.shapes import variable_shapes
from darn.more.chain import Chain, chain_arrays, chain_header, chain_of, chain_shapes
from darn.more.completion import Completed, completed
from darn.more.distribution import log_prob_and_effective, warn_of_few
from darn.more.masked import MaskedNetwork, network_arrays, network_header, network_of, network_shapes
from darn.more.ordered import Ordered, checked_bits
from gpflow_deep_base.container import load_container, save_container
from gpflow_deep_base.files import PathLike
from gpflow_deep_base.limits import refuse_damaged

__all__ = [
    "Density",
    "Member",
    "Mixture",
    "drawn",
    "load_density",
    "log_prob",
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
_MAX_SUMMED_UNITS = 12  # whose 2^12 states take about as long as 4,000 importance samples
_MAX_MEMBERS = 1024


@dataclass(frozen=True)
class Mixture:
    """sum_m w_m p_m(x).

    :ivar members: chains, networks and DARNs of the same columns.
    :ivar log_weights: log w, [M], whose exponentials sum to 1.
    """

    members: tuple[Member, ...]
    log_weights: NDArray[np.float64]

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
        each = [member_log_prob(member, x, num_samples=num_samples, seed=seed) for member in self.members]
        found: NDArray[np.float64] = np.logaddexp.reduce(np.stack(each) + self.log_weights[:, None], axis=0)
        return found

    def sample(self, num: int, seed: int = 0) -> NDArray[np.uint8]:
        """Independent draws of rows, [num, n], each of one of the members.

        :param num: of rows.
        :param seed: the same gives the same rows.
        """
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

    def complete(self, x: ArrayLike, is_missing: ArrayLike, *, seed: int = 0) -> Completed:
        """Missing bits given the known ones: the mean of what the members say, weighed by w_m p_m(known bits).

        :param x: [N, n]; what stands where bits are missing does not matter.
        :param is_missing: booleans [N, n].
        :param seed: of draws, where a member's states are too many to be summed.
        :raises ValueError: for another shape or other values, or known bits that no row has.
        """
        mask = np.asarray(is_missing)
        rows = np.where(mask, 0, np.asarray(x)).astype(np.float64)
        log_known = np.zeros(len(rows))
        effective = np.full(len(rows), np.inf)
        lacks = mask.any(axis=1) if mask.ndim == 2 else np.ones(len(rows), bool)
        if not lacks.all():
            log_known[~lacks] = self.log_prob(rows[~lacks])
        if lacks.any():
            each = [_completed(member, rows[lacks], mask[lacks], seed) for member in self.members]
            log_joint = np.stack([part.log_known for part in each]) + self.log_weights[:, None]
            log_known[lacks] = np.logaddexp.reduce(log_joint, axis=0)
            shares = np.exp(log_joint - log_known[lacks])
            rows[lacks] = np.einsum("mn,mnj->nj", shares, np.stack([part.probabilities for part in each]))
            effective[lacks] = np.min([part.effective for part in each], axis=0)
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
    rows = checked_bits(x, _width(member))
    how: dict[str, Any] = {"num_samples": num_samples, "seed": seed, "max_exact_units": _MAX_SUMMED_UNITS}
    blocks = [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]
    if not blocks:
        return np.zeros(0)
    found = [log_prob_and_effective(member, block, **how) for block in blocks]
    log_p, effective = (np.concatenate([each.numpy() for each in part]) for part in zip(*found, strict=True))
    if warns:
        warn_of_few(effective, num_samples)
    return log_p.astype(np.float64)


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


def drawn(density: Density, num: int, seed: int) -> NDArray[np.uint8]:
    """Independent draws of rows, [num, n].

    :param density: of which model.
    :param num: of rows.
    :param seed: the same gives the same rows.
    """
    found: Any = density.sample(num, seed)
    rows: NDArray[np.uint8] = found.x.numpy().astype(np.uint8) if isinstance(density, DARN) else found
    return rows


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
    headers: list[dict[str, Any]] = []
    arrays: dict[str, NDArray[Any]] = {}
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
    stored = load_container(path, kind=_KIND, versions=(_VERSION,), expected=_shapes, max_bytes=max_bytes)
    try:
        members: list[Member] = []
        for number, header in enumerate(stored.header["members"]):
            start = f"{number}/"
            arrays = {name.removeprefix(start): a for name, a in stored.arrays.items() if name.startswith(start)}
            members.append(_member(header, arrays))
        if len({_width(member) for member in members}) != 1:
            raise ValueError("its members must have the same columns")
        if not stored.header["is_mixture"]:
            return members[0]
        log_weights = stored.arrays["log_weights"]
        is_right = log_weights.dtype == np.float64 and np.isfinite(log_weights).all()
        if not is_right or abs(np.logaddexp.reduce(log_weights)) > 1e-6:
            raise ValueError("its weights must be logarithms of numbers that sum to 1")
        return Mixture(tuple(members), log_weights)
    except ValueError as error:
        refuse_damaged(path, _KIND, error)


def _shapes(header: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    members = header.get("members")
    if set(header) != {"members", "is_mixture"} or type(header["is_mixture"]) is not bool:
        raise ValueError("its header must have the members and whether they are a mixture, and nothing else")
    most = _MAX_MEMBERS if header["is_mixture"] else 1
    if not isinstance(members, list) or not 1 <= len(members) <= most:
        raise ValueError(f"its header must have 1 to {most} members")
    shapes: dict[str, tuple[int, ...]] = {}
    for number, member in enumerate(members):
        if not isinstance(member, dict) or len(member) != 1:
            raise ValueError("each member must be a chain, a network or a configuration")
        if isinstance(chain := member.get("chain"), dict):
            each = chain_shapes(chain)
        elif isinstance(network := member.get("network"), dict):
            each = network_shapes(network)
        else:
            each = variable_shapes(_config(member))
        shapes |= {f"{number}/{name}": shape for name, shape in each.items()}
    return shapes | ({"log_weights": (len(members),)} if header["is_mixture"] else {})


def _member(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Member:
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


def _completed(member: Member, x: ArrayLike, is_missing: ArrayLike, seed: int) -> Completed:
    if isinstance(member, Ordered):
        return member.complete(x, is_missing, seed=seed)
    return completed(member, x, is_missing, seed=seed)

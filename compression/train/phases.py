"""What happens to a network between its epochs.

It becomes Bayesian around its weights, and loses units for good where that pays; `compression.train.schedule` says
when, and `compression.train.last_phase` trains what is left as a plain network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras

from ..graph.carry import carry_optimizer
from ..graph.convert import compress
from ..graph.cutting import Kept
from ..graph.graph import graph_of
from ..graph.kinds import weighted_layers
from ..graph.shrink import shrink_bayesian
from ..graph.sizes import Size
from ..layers.posterior import bayesian_layers
from ..layers.thresholds import Thresholds, part_left, thresholds_of
from .budget import thresholds_within
from .schedule import RecipeConfig, most_left, part_to_keep

__all__ = ["Cut", "Phases", "ThresholdsOf", "bayesian_form", "check_thresholds", "cut", "looks"]

ThresholdsOf: TypeAlias = Callable[[keras.Model], Thresholds]


class Cut(NamedTuple):
    """A smaller Bayesian network, its optimizer, and the inputs and outputs of each layer that it kept."""

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    kept: dict[str, Kept]


class Phases:
    """A network on its way: plain, Bayesian, with fewer units.

    :ivar model, optimizer: as they are now.

    :param looks: see :func:`looks`.
    :param num_train: examples, over which the KL is divided.
    :param seed: of the noise.
    :param new_optimizer: one that is built for a network, for each that is no smaller form of the one before.
    :param settings: of the Bayesian layers.
    """

    def __init__(
        self,
        config: RecipeConfig,
        model: keras.Model,
        looks: Callable[[float], Sequence[ThresholdsOf]],
        *,
        num_train: int,
        seed: int,
        new_optimizer: Callable[[keras.Model], keras.optimizers.Optimizer],
        **settings: Any,
    ) -> None:
        self.config = config
        self.model = model
        self.optimizer = new_optimizer(model)
        self._looks = looks
        self._num_train = num_train
        self._seed = seed
        self._settings = settings
        self._new_optimizer = new_optimizer
        self._next: Cut | None = None

    @property
    def is_bayesian(self) -> bool:
        """Whether the plain phase is over."""
        return bool(bayesian_layers(self.model))

    def prepare(self, number: int) -> bool:
        """Do what is due before the epoch `number`, counted from the first of the plain phase.

        :return: whether the network is another one now.
        :raises ValueError: if a layer is pruned to nothing.
        """
        own = number - self.config.pretrain_epochs
        if own >= 0 and not self.is_bayesian:
            given = {"num_train": self._num_train, "seed": self._seed, **self._settings}
            self.replace(bayesian_form(self.config, self.model, **given))
            return True
        if self._next is None and (own <= 0 or not self.look(own)):
            return False
        assert self._next is not None
        self.replace(self._next.model, self._next.optimizer)
        return True

    def look(self, done: int) -> bool:
        """Whether units are to be removed when so many epochs of the Bayesian network are over, as it is then."""
        if (at_most := most_left(self.config, done)) is not None:
            self._next = cut(self.model, self.optimizer, self._looks(done), at_most=at_most)
        return self._next is not None

    def replace(self, model: keras.Model, optimizer: keras.optimizers.Optimizer | None = None) -> None:
        """Go on with another network, and with its optimizer if there is one already."""
        self.model = model
        self._next = None
        self.optimizer = self._new_optimizer(model) if optimizer is None else optimizer


def bayesian_form(
    config: RecipeConfig, model: keras.Model, *, num_train: int, seed: int, **settings: Any
) -> keras.Model:
    """The network around whose weights the Bayesian phase begins; `model` is not changed.

    :param seed: of the noise.
    :param settings: of its layers, before those of `config`; see :func:`compress`.
    """
    options: dict[str, Any] = {"scale_speed": config.scale_speed, "initial_log_std": config.initial_log_std}
    if config.prior != "ghs":
        options["kl"] = config.kl
    if config.std_cap is not None:
        options["std_cap"] = {weighted_layers(graph_of(model))[0].name: config.std_cap}
    return compress(model, num_train=num_train, prior=config.prior, seed=seed, **{**options, **settings})


def check_thresholds(config: RecipeConfig, model: keras.Model) -> None:
    """Refuse thresholds that are neither one nor as many as the network has layers with weights: ValueError."""
    given = config.threshold
    num_layers = len(weighted_layers(graph_of(model)))
    if given is not None and len(given) not in (1, num_layers):
        raise ValueError(f"threshold must be one number, or one for each of {num_layers} layers, got {len(given)}.")


def looks(
    config: RecipeConfig, checked: ThresholdsOf, loss_of: Callable[[keras.Model], float], original: Size
) -> Callable[[float], list[ThresholdsOf]]:
    """What decides about the units of a network after so many of its epochs.

    The cheapest is the first, and none removes less than the one before.

    :param checked: automatic thresholds, raised where data that are set aside would suffer; not used if `config` has
        thresholds or a part to keep.
    :param loss_of: the loss on these data, by which a part to keep is chosen.
    :param original: of the network before, of which that is a part.
    """
    given = config.threshold
    if config.keep is not None:
        whole = getattr(original, config.keep_of)
        kind = config.keep_of
        if whole is None:
            raise ValueError("keep_of=multiplications needs a network whose inputs have a given shape; count weights.")

        def most_at(done: float) -> ThresholdsOf:
            return lambda model: thresholds_within(model, part_to_keep(config, done) * whole, loss_of, kind=kind)

        return lambda done: [most_at(done)]
    if given is None:
        return lambda done: [lambda model: thresholds_of(model, "auto"), checked]

    def of(model: keras.Model) -> dict[str, float]:
        names = [layer.name for layer in bayesian_layers(model)]
        return dict(zip(names, given * len(names) if len(given) == 1 else given, strict=True))

    return lambda done: [of]


def cut(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    thresholds: Sequence[ThresholdsOf],
    *,
    at_most: float,
) -> Cut | None:
    """Remove what is pruned for good, unless by one of the thresholds more than this part of the weights is left.

    :param optimizer: built for `model`; its state goes along.
    :param thresholds: the last of them decide.
    :raises ValueError: as :func:`compression.shrink_bayesian`, such as where nothing is left.
    """
    for of in thresholds:
        chosen = of(model)
        if part_left(model, chosen) > at_most:
            return None
    smaller, kept = shrink_bayesian(model, chosen)
    return Cut(smaller, carry_optimizer(optimizer, model, smaller, kept), kept)

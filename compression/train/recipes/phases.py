"""What happens to a network between its epochs.

It becomes Bayesian around its weights, and loses units for good where that pays; `compression.train.schedule` says
when, and `compression.train.recipes.last_phase` trains what is left as a plain network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras

from ...graph.convert import compress
from ...graph.graph import graph_of
from ...graph.kinds import weighted_layers
from ...graph.removal.carry import carry_optimizer
from ...graph.removal.cutting import Kept
from ...graph.removal.shrink import shrink_bayesian
from ...graph.sizes import Size
from ...layers.posterior import bayesian_layers
from ...layers.thresholds import Thresholds, part_left, thresholds_of
from ..schedule import RecipeConfig, most_left, part_to_keep
from .budget import thresholds_within

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
        # The first of these epochs makes the network Bayesian.
        bayesian_epoch = number - self.config.pretraining.pretrain_epochs
        if bayesian_epoch >= 0 and not self.is_bayesian:
            options = {"num_train": self._num_train, "seed": self._seed, **self._settings}
            self.replace(bayesian_form(self.config, self.model, **options))
            return True
        # Units were removed at the end of the epoch before, or are now.
        if self._next is None and (bayesian_epoch <= 0 or not self.look(bayesian_epoch)):
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
    # Settings of the layers; the horseshoe has one kind of KL only.
    options: dict[str, Any] = {"scale_speed": config.scale_speed, "initial_log_std": config.initial_log_std}
    if config.prior != "ghs":
        options["kl"] = config.kl
    # Sec. 5: the standard deviations of the first layer are kept small.
    if config.std_cap is not None:
        options["std_cap"] = {weighted_layers(graph_of(model))[0].name: config.std_cap}
    return compress(model, num_train=num_train, prior=config.prior, seed=seed, **{**options, **settings})


def check_thresholds(config: RecipeConfig, model: keras.Model) -> None:
    """Refuse thresholds that are neither one nor as many as the network has layers with weights: ValueError."""
    thresholds = config.pruning.threshold
    num_layers = len(weighted_layers(graph_of(model)))
    if thresholds is not None and len(thresholds) not in (1, num_layers):
        raise ValueError(
            f"threshold must be one number, or one for each of {num_layers} layers, got {len(thresholds)}."
        )


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
    thresholds = config.pruning.threshold
    # A part to keep: the thresholds within it, as it falls from epoch to epoch.
    if config.pruning.keep is not None:
        total_size = getattr(original, config.pruning.keep_of)
        kind = config.pruning.keep_of
        if total_size is None:
            raise ValueError("keep_of=multiplications needs a network whose inputs have a given shape; count weights.")

        def most_at(done: float) -> ThresholdsOf:
            return lambda model: thresholds_within(model, part_to_keep(config, done) * total_size, loss_of, kind=kind)

        return lambda done: [most_at(done)]
    # Automatic thresholds, first without the error on data set aside, which takes long.
    if thresholds is None:
        return lambda done: [lambda model: thresholds_of(model, "auto"), checked]

    def fixed_thresholds(model: keras.Model) -> dict[str, float]:
        names = [layer.name for layer in bayesian_layers(model)]
        return dict(zip(names, thresholds * len(names) if len(thresholds) == 1 else thresholds, strict=True))

    return lambda done: [fixed_thresholds]


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
    # Cheap thresholds first; the costly ones only where these would remove enough.
    for thresholds_of_model in thresholds:
        chosen = thresholds_of_model(model)
        if part_left(model, chosen) > at_most:
            return None
    # The smaller network, and the state of the optimizer for what is left.
    smaller, index_maps = shrink_bayesian(model, chosen)
    return Cut(smaller, carry_optimizer(optimizer, model, smaller, index_maps), index_maps)

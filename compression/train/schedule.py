"""What is done in which epoch and step of a training, and how: a function of settings and numbers alone.

`compression.fit`, `compression.Recipe` and the callbacks of Keras ask the same functions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import tensorflow as tf

from gpflow_deep_base.numbers.groups import grouped

__all__ = [
    "EndingConfig",
    "MotionConfig",
    "PretrainConfig",
    "PruningConfig",
    "RecipeConfig",
    "falling",
    "kept_after",
    "kl_weight_after",
    "kl_weight_at",
    "last_rate_at",
    "learning_rate_at",
    "most_left",
    "part_to_keep",
    "raised_after",
]

SHRINK_BELOW = 0.9
"""Part of the weights below which what is left pays for making the network anew."""

LAST_FROM = 0.0
"""Part of the last phase after which its learning rate falls, half a cosine."""

_RAISED_FROM = 0.3
_RAISED_TO = 0.4
"""Parts of the epochs between which the weight of the KL is raised."""
_KEPT_HALVES = 6

_AT_LEAST = {"epochs": 1, "kl_weight": 0, "warmup": 0, "learning_rate": 0}
_ALLOWED = {"prior": ("gnj", "ghs", "svd"), "kl": ("approximate", "exact"), "decay": ("none", "linear", "cosine")}


def check_least(config: object, least: Mapping[str, float]) -> None:
    """Refuse numbers that are not finite, or below the least one of their names.

    :raises ValueError: naming the field.
    """
    for name, minimum in least.items():
        if not minimum <= getattr(config, name) < math.inf:
            raise ValueError(f"{name} must be finite and at least {minimum}, got {getattr(config, name)}.")


@dataclass(frozen=True)
class PretrainConfig:
    """The plain network that is trained first.

    :param pretrain_epochs: first train the plain network for so many epochs.
    :param pretrain_learning_rate: learning rate of Adam in --pretrain_epochs.
    """

    pretrain_epochs: int = 0
    pretrain_learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        check_least(self, {"pretrain_epochs": 0, "pretrain_learning_rate": 0})


@dataclass(frozen=True)
class MotionConfig:
    """How training images are moved.

    :param shift: move each training image by up to so many pixels, another way in each epoch.
    :param flip: mirror half of the training images left to right, other ones in each epoch.
    """

    shift: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        check_least(self, {"shift": 0})


@dataclass(frozen=True)
class PruningConfig:
    """What is removed, and when.

    :param threshold: scores above it are pruned: one number, or one for each layer; chosen automatically if not given.
    :param keep: part of --keep_of that may be left at most: thresholds are chosen so, by the loss on examples that are
        set aside, and where units are removed during training the part falls to this along a cubic curve.
    :param keep_of: what --keep is a part of.
    :param prune_tolerance: percent of error on examples set aside that automatic thresholds may add.
    :param shrink_every: remove pruned units every so many epochs during training; 0: never.
    :param shrink_from: do not remove units before so many epochs of the Bayesian network.
    """

    threshold: tuple[float, ...] | None = None
    keep: float | None = None
    keep_of: Literal["weights", "multiplications"] = "weights"
    prune_tolerance: float = 0.3
    shrink_every: int = 0
    shrink_from: int = 0

    def __post_init__(self) -> None:
        check_least(self, {"prune_tolerance": 0, "shrink_every": 0, "shrink_from": 0})
        if self.keep_of not in ("weights", "multiplications"):
            raise ValueError(f"keep_of must be one of weights, multiplications, got {self.keep_of!r}.")
        if self.threshold is not None and (not self.threshold or any(map(math.isnan, self.threshold))):
            raise ValueError(f"threshold must be one number, or one for each layer, got {self.threshold}.")
        if self.keep is not None and not 0 < self.keep <= 1:
            raise ValueError(f"keep must be above 0 and at most 1, got {self.keep}.")
        if self.keep is not None and self.threshold is not None:
            raise ValueError("keep chooses thresholds; give keep or threshold, not both.")


@dataclass(frozen=True)
class EndingConfig:
    """Phases after the Bayesian epochs.

    :param polish_epochs: after --epochs, train what is left with a KL of the weight --polish_kl.
    :param polish_kl: weight of the KL in the last --polish_epochs.
    :param last_epochs: at last train what is left as a plain network, without noise and KL, for so many epochs.
    :param last_normalization: in the --last_epochs put batch normalisation behind convolutions; it is folded then.
    :param last_teacher: in the --last_epochs the plain network that was trained before teaches what is left of it, at
        this temperature (Hinton et al. 2015): logits are divided by it; labels alone do if this is not given.
    """

    polish_epochs: int = 0
    polish_kl: float = 0.1
    last_epochs: int = 0
    last_normalization: bool = False
    last_teacher: float | None = None

    def __post_init__(self) -> None:
        check_least(self, {"polish_epochs": 0, "polish_kl": 0, "last_epochs": 0})
        if self.last_teacher is not None and not 0 < self.last_teacher < math.inf:
            raise ValueError(f"last_teacher must be positive and finite, got {self.last_teacher}.")
        if self.last_teacher is not None and not self.last_epochs:
            raise ValueError(
                f"last_teacher={self.last_teacher} is for the last phase; give last_epochs, or leave it out."
            )


@grouped
@dataclass(frozen=True)
class RecipeConfig:
    """How to train a network so that it gets small. An epoch is a pass over the training examples.

    :param prior: group normal-Jeffreys, group horseshoe, or sparse variational dropout of single weights.
    :param kl: KL of the normal-Jeffreys scales: the fit of Eq. 9, or exact.
    :param epochs: epochs of the Bayesian network.
    :param kl_weight: weight of the KL after the warm-up; 1 is the variational bound.
    :param warmup: epochs over which the weight of the KL grows from 0 to --kl_weight.
    :param learning_rate: learning rate of Adam.
    :param decay: how the learning rate falls to 0 in the end.
    :param decay_from: part of the epochs after which the learning rate begins to fall.
    :param scale_speed: learning rate of the scales over that of the weights.
    :param initial_log_std: log standard deviation of weights and scales at first; the paper has -9.
    :param std_cap: largest standard deviation of the first layer's weights; none if not given.
    :param pretraining: the plain network that is trained first.
    :param motion: how training images are moved.
    :param pruning: what is removed, and when.
    :param ending: phases after the Bayesian epochs.
    """

    prior: Literal["gnj", "ghs", "svd"] = "gnj"
    kl: Literal["approximate", "exact"] = "approximate"
    epochs: int = 60
    kl_weight: float = 1.0
    warmup: float = 10.0
    learning_rate: float = 1e-3
    decay: Literal["none", "linear", "cosine"] = "cosine"
    decay_from: float = 0.5
    scale_speed: float = 4.0
    initial_log_std: float = -9.0
    std_cap: float | None = None
    pretraining: PretrainConfig = PretrainConfig()
    motion: MotionConfig = MotionConfig()
    pruning: PruningConfig = PruningConfig()
    ending: EndingConfig = EndingConfig()

    def __post_init__(self) -> None:
        # Numbers and words that are out of range.
        check_least(self, _AT_LEAST)
        for name, allowed in _ALLOWED.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}.")
        if self.kl == "exact" and self.prior == "ghs":
            raise ValueError("kl=exact needs the prior gnj or svd, got ghs, whose KL is exact already; leave it out.")
        for name in ("scale_speed", "std_cap"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value}.")
        if not 0 <= self.decay_from <= 1:
            raise ValueError(f"decay_from must be between 0 and 1, got {self.decay_from}.")
        if not math.isfinite(self.initial_log_std):
            raise ValueError(f"initial_log_std must be finite, got {self.initial_log_std}.")

    @property
    def num_epochs(self) -> int:
        """Epochs of all phases but the last, of which a run keeps no state."""
        return self.pretraining.pretrain_epochs + self.epochs + self.ending.polish_epochs


def most_left(config: RecipeConfig, done: int) -> float | None:
    """When pruned units are removed for good: if no more than this part of the weights is left.

    :param done: epochs of the Bayesian network that are over.
    :return: None where that is not looked at. Before polishing they go in any case.
    """
    # Before polishing at any saving, else on the epochs of the schedule if it pays.
    if done == config.epochs and config.ending.polish_epochs:
        return 1.0
    is_within = max(1, config.pruning.shrink_from) <= done < config.epochs
    return (
        SHRINK_BELOW if config.pruning.shrink_every and is_within and done % config.pruning.shrink_every == 0 else None
    )


def part_to_keep(config: RecipeConfig, done: float) -> float:
    """The part of `keep_of` that may be left when so many epochs of the Bayesian network are over; 1 if none is set.

    `keep` from the end of `epochs` on; before, where units are removed during training, it falls as that of gradual
    pruning does (Zhu and Gupta 2017), from 1 after `shrink_from` epochs or the warm-up.
    """
    if config.pruning.keep is None or (done < config.epochs and not config.pruning.shrink_every):
        return 1.0
    # Zhu and Gupta (2017): from 1 at `start` by a cubic to `keep` at the end of the epochs.
    start = min(max(float(config.pruning.shrink_from), config.warmup), config.epochs)
    if done >= config.epochs:
        return config.pruning.keep
    progress = max(0.0, done - start) / (config.epochs - start) if start < config.epochs else 0.0
    return config.pruning.keep + (1.0 - config.pruning.keep) * (1.0 - progress) ** 3


def learning_rate_at(config: RecipeConfig, step: tf.Tensor, steps_per_epoch: int, *, is_bayesian: bool) -> tf.Tensor:
    """Learning rate of a step, float32 []; steps are counted from 0 in the plain and again in the Bayesian network."""
    # Each network has steps and a peak of its own.
    epochs = config.epochs + config.ending.polish_epochs if is_bayesian else config.pretraining.pretrain_epochs
    peak = config.learning_rate if is_bayesian else config.pretraining.pretrain_learning_rate
    return peak * falling(step / (epochs * steps_per_epoch), decay=config.decay, decay_from=config.decay_from)


def last_rate_at(config: RecipeConfig, step: tf.Tensor, steps_per_epoch: int) -> tf.Tensor:
    """Learning rate of a step of the `last_epochs`, float32 []: half a cosine, from `learning_rate` to 0."""
    return config.learning_rate * falling(step / (config.ending.last_epochs * steps_per_epoch), decay_from=LAST_FROM)


def falling(progress: tf.Tensor | float, *, decay: str = "cosine", decay_from: float) -> tf.Tensor:
    """Factor of the learning rate when this part of the steps, 0 to 1, is done: 1 at first, 0 in the end.

    :param decay: "none", "linear" or "cosine".
    :param decay_from: part of the steps after which it begins to fall.
    """
    if decay == "none" or decay_from == 1.0:
        return tf.ones([])
    # The part of the fall that is still to come, 1 to 0.
    remaining = tf.clip_by_value((1.0 - progress) / (1.0 - decay_from), 0.0, 1.0)
    return remaining if decay == "linear" else 0.5 * (1.0 - tf.cos(math.pi * remaining))


def raised_after(config: RecipeConfig, weights: Sequence[float]) -> dict[int, float]:
    """Epochs after which the weight of the KL is raised to the next one, if `kl_weight` is the lowest of several.

    They are spread from 0.3 to 0.4 of `epochs`, so that the last weight has most of them, or the warm-up delays them.

    :param weights: all of them, the lowest first.
    """
    # Equal steps from 0.3 to 0.4 of the epochs, or later if the warm-up is longer.
    first = min(max(_RAISED_FROM * config.epochs, config.warmup), config.epochs)
    step = max(0.0, _RAISED_TO * config.epochs - first) / max(1, len(weights) - 1)
    raised = {math.ceil(first + number * step): weight for number, weight in enumerate(weights[1:])}
    return {epoch: weight for epoch, weight in raised.items() if epoch < config.epochs}


def kept_after(config: RecipeConfig, raised: Mapping[int, float]) -> set[int]:
    """Epochs after which what is left is kept, if the weight of the KL is raised: before each raise, and later.

    Units go soon after the last raise or long after it: a half of the epochs that follow it, a quarter and so on.

    :param raised: from :func:`raised_after`.
    """
    if not raised:
        return set()
    # Halves of the epochs after the last raise.
    last = max(raised)
    later = {math.ceil(last + (config.epochs - last) / 2**halves) for halves in range(1, _KEPT_HALVES + 1)}
    return {*raised, *later} - {config.epochs}


def kl_weight_at(
    config: RecipeConfig, step: tf.Tensor, steps_per_epoch: int, raised: Mapping[int, float] | None = None
) -> tf.Tensor:
    """Weight of the KL in a step of the Bayesian network, float32 []; see :func:`kl_weight_after`.

    :param step: from 0, float32 [].
    """
    return kl_weight_after(config, step + 1.0, steps_per_epoch, raised)


def kl_weight_after(
    config: RecipeConfig,
    done: tf.Tensor | float,
    steps_per_epoch: int = 1,
    raised: Mapping[int, float] | None = None,
) -> tf.Tensor:
    """Weight of the KL in a step, float32 []: it grows linearly, is constant, then `polish_kl`.

    :param done: steps of the Bayesian network that are over when this one is; parts of an epoch if it has one step.
    :param raised: from :func:`raised_after`.
    """
    # Sec. 5, "warm-up": linearly from 0 over the first epochs.
    length = config.warmup * steps_per_epoch
    growing = config.kl_weight * (tf.minimum(1.0, done / length) if length else tf.ones([]))
    # Then the weights to which it is raised, and at last that of polishing.
    for epoch, weight in (raised or {}).items():
        growing = tf.where(done > float(epoch * steps_per_epoch), weight, growing)
    return tf.where(done > float(config.epochs * steps_per_epoch), config.ending.polish_kl, growing)

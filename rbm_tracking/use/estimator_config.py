"""What of the training of `TrackedRBM` hardly anybody turns, with values that did best on seven sets."""

from dataclasses import dataclass

import numpy as np

from gpflow_deep_base.numbers.groups import grouped
from rbm_tracking.model.random import Generator
from rbm_tracking.track.settings import Method, Schedule

__all__ = ["LadderConfig", "StoppingConfig", "TrainingConfig"]


def check_whole(least: int, **values: object) -> None:
    """Check that values are whole numbers of at least `least`.

    :raises ValueError: naming the one that is not.
    """
    for name, value in values.items():
        if not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")


@dataclass(frozen=True)
class LadderConfig:
    """The chains that drive the gradient and track log Z.

    :param n_temps: temperatures, from beta = 1 to 0.
    :param n_chains: chains at each.
    :param n_target_chains: more chains at beta = 1, outside of the ladder; with "tempering" they take turns in it.
        None: 100, and 0 with "cd".
    :param adaptive: adapt the temperatures to the flow of particles.
    """

    n_temps: int = 10
    n_chains: int = 20
    n_target_chains: int | None = None
    adaptive: bool = False

    def __post_init__(self) -> None:
        check_whole(2, n_temps=self.n_temps, n_chains=self.n_chains)
        if self.n_target_chains is not None:
            check_whole(0, n_target_chains=self.n_target_chains)


@dataclass(frozen=True)
class StoppingConfig:
    """How training ends: early stopping and last steps, on rows that are set aside.

    :param validation_fraction: of the rows, 10,000 at most, that early stopping sets aside. Fewer than 10 rows are all
        trained with.
    :param eval_every: updates between evaluations; None: twenty passes, ten over fewer than a thousand rows, from 50 to
        500 updates.
    :param patience: evaluations in a row, worse than the best by more than their errors, after which training stops.
    :param last_steps: of the gradient at the end of :meth:`TrackedRBM.fit`, by a population of AIS that has the masses
        of modes right, of which those stay that these rows are better off with; see `rbm_tracking.use.averages`.
        They are for what is trained by "tempering", with averages and whole rows; 0 for none.
    """

    validation_fraction: float = 0.1
    eval_every: int | None = None
    patience: int = 10
    last_steps: int = 30

    def __post_init__(self) -> None:
        check_whole(1, patience=self.patience)
        check_whole(0, last_steps=self.last_steps)
        if self.eval_every is not None:
            check_whole(1, eval_every=self.eval_every)
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must be between 0 and 1, got {self.validation_fraction!r}.")


@grouped
@dataclass(frozen=True)
class TrainingConfig:
    """How :class:`rbm_tracking.TrackedRBM` trains and watches, besides its own parameters.

    :param schedule: of the learning rate: "linear" and "cosine", which hold it for the first 30 % of the updates and
        end at 0 (`partial_fit`, which has no last update, holds it), "constant"; or a function of the number of the
        update that gives the rate itself.
    :param method: whose chains drive the gradient: "tempering", those at beta = 1 of all; "pcd", the target chains
        alone; "cd", chains that start at the minibatch. The ladder tracks log Z with each of them.
    :param gibbs_steps: rounds of Gibbs sampling in each update.
    :param centred: use the centred gradient.
    :param momentum: part of the last change of the parameters that is made again.
    :param sparsity_target: mean activity that hidden biases are pulled to, by `sparsity_cost`; None: they are not.
    :param sparsity_cost: how strongly.
    :param average: decay of the moving average of the parameters, which then are the model's; 0 for none.
    :param n_modes: start from so many leading modes of the data, and not from noise alone.
    :param learn_variances: of Gaussian units; else they stay those of the columns.
    :param ais_temps: temperatures of AIS with 100 chains, which with early stopping checks log Z wherever parameters
        are about to become the best, or the filter doubts itself (a quarter of them in NumPy). At the end of every fit
        log Z is exact where enumeration takes about a second at most: up to some 20 to 25 hidden or visible units. Else
        AIS of an eighth of them with 100 chains from each of up to eight clusters of the rows, and of up to four modes
        of the model that are unlike any row, checks it again, beside a shorter one, of which it must not be far above;
        and one along parameters that training went through, which finds modes that are out of reach of all
        temperatures.
    :param generator: of the noise, "numpy", "philox", "threefry" or "hash", see `rbm_tracking.model.random`; "numpy"
        also trains and anneals in NumPy, which is at work at once. None: "threefry" with XLA and "numpy" without.
    :param jit_compile: compile with XLA, which takes ten to twenty seconds for each new shape, and updates are up to
        three times as fast then. None: where that pays, for more than 20,000 weights or 10,000 updates.
    :param ladder: the chains that drive the gradient and track log Z.
    :param stopping: early stopping.
    :raises ValueError: naming the field that is wrong.
    """

    schedule: Schedule = "linear"
    method: Method = "tempering"
    gibbs_steps: int = 1
    centred: bool = True
    momentum: float = 0.0
    sparsity_target: float | None = None
    sparsity_cost: float = 0.1
    average: float = 0.999
    n_modes: int = 0
    learn_variances: bool = True
    ais_temps: int = 1000
    generator: Generator | None = None
    jit_compile: bool | None = None
    ladder: LadderConfig = LadderConfig()
    stopping: StoppingConfig = StoppingConfig()

    def __post_init__(self) -> None:
        check_whole(0, n_modes=self.n_modes)
        check_whole(2, ais_temps=self.ais_temps)
        check_whole(1, gibbs_steps=self.gibbs_steps)

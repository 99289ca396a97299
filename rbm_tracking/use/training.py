"""Training as an object: the state of `learning` in variables, and many updates in one call.

    trainer = Trainer(state, SMLConfig(learning_rate=0.01))
    observed = trainer.advance(x, rows, seed)     # rows [K, B]: the minibatches of K updates
    trainer.state, trainer.saved()

Noise is a function of (seed, update): training that is stopped and continued gives the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from rbm_tracking.estimates.trajectories import is_node, keep_in, load_nodes
from rbm_tracking.model.checks import linear_ladder
from rbm_tracking.model.random import Execution
from rbm_tracking.model.rbm import RBM, initial_rbm, low_rank_rbm
from rbm_tracking.model.serialization import SavedRBM
from rbm_tracking.model.visible import Bernoulli, Visible
from rbm_tracking.track.filtering import log_z_std
from rbm_tracking.track.ladder import spawn_level
from rbm_tracking.track.settings import SMLConfig
from rbm_tracking.track.state import SMLState, check_parts, initial_state, spawn
from rbm_tracking.track.updates.learning import Observed, compiled_updates
from rbm_tracking.use.averages import averaged

__all__ = ["MAX_BLOCK", "Trainer", "new_trainer", "not_finite"]

MAX_BLOCK = 250
"""Most updates in one call of :meth:`Trainer.advance`."""


def not_finite(state: SMLState, observed: Observed) -> str | None:
    """What to tell the user if parameters have diverged, or log Z is not finite though they are; None if all is well.

    :param observed: of updates up to that of `state`.
    """
    # Parameters first: log Z is not finite with them.
    if not all(np.isfinite(part).all() for part in tf.nest.flatten(state.rbm)):
        return (
            f"the parameters are no longer finite after update {int(state.step)}: training has diverged; lower "
            "learning_rate, or let it fall with schedule='linear'."
        )
    if not np.isfinite(observed.log_z).all():
        return (
            f"log Z is not finite after update {int(state.step)}, though the parameters are: energies overflow their "
            "float type; lower learning_rate, or train without tracking."
        )
    return None


class Trainer:
    """An RBM in training, with all that changes in variables.

    :ivar config: how it is trained and tracked.
    :ivar store: module with these variables, for checkpoints.
    :ivar trajectory: folder of the parameters along the way; None if there is none.
    :ivar observed: what the updates of the last call of :meth:`advance` saw, arrays [K]; None before the first.

    :param state: the state before the first update, see `learning.initial_state`.
    :param spawn_up_to: the most temperatures that :meth:`spawn` makes; 0 if it is not used.
    :param jit_compile: compile with XLA: takes some seconds for each number of temperatures, and is several times
        faster then.
    :param seed: int32 [2], of the noise by which log Z of averaged parameters is found.
    :param keep_node: gets the parameters along the way, of updates at even distances in their logarithm, for
        :mod:`rbm_tracking.trajectories` to anneal along; `trajectories.keep_in` writes them to a folder.
    """

    def __init__(
        self,
        state: SMLState,
        config: SMLConfig,
        *,
        spawn_up_to: int = 0,
        jit_compile: bool = True,
        seed: tf.Tensor | None = None,
        keep_node: Callable[[SavedRBM], object] | None = None,
    ) -> None:
        check_parts(state, config)
        # Variables for all that changes; sizes with temperatures are open if these are spawned.
        num_temps = state.ladder.beta.shape[0]
        changing = {num_temps - 1, num_temps, num_temps + 1} if spawn_up_to else set()
        self.store = tf.Module(name="trainer")
        self.store.leaves = [
            tf.Variable(leaf, shape=[None if size in changing else size for size in leaf.shape], trainable=False)
            for leaf in tf.nest.flatten(state)
        ]
        no_rates = tf.zeros([0, num_temps - 1], tf.float64)
        self.store.swap_rates = tf.Variable(no_rates, shape=[None, None], trainable=False)  # since they were asked for
        self.config = config
        self.spawn_up_to = spawn_up_to
        self.trajectory: str | os.PathLike[str] | None = None
        self.observed: Observed | None = None
        self._structure = state
        self._keep_node = keep_node
        self._seed = tf.zeros([2], tf.int32) if seed is None else seed
        self._jit_compile = jit_compile
        self._model: SMLState | None = None
        self._updates = compiled_updates(config, jit_compile=jit_compile)

    @property
    def state(self) -> SMLState:
        """What the variables hold."""
        values = [tf.convert_to_tensor(leaf) for leaf in self.store.leaves]
        return tf.nest.pack_sequence_as(self._structure, values)

    @property
    def model(self) -> SMLState:
        """The state with the parameters to use: the averaged ones, with their log Z, if the configuration asks for
        averages."""
        if not self.config.average:
            return self.state
        if self._model is None or int(self._model.step) != int(self.store.leaves[0]):
            options: Execution = {"generator": self.config.generator, "jit_compile": self._jit_compile}
            self._model = averaged(self.state, seed=self._seed, **options)
        return self._model

    @property
    def num_temps(self) -> int:
        """Number of temperatures, which grows if they are spawned."""
        return int(self.state.ladder.beta.shape[0])

    @property
    def flags(self) -> int:
        """Health flags of log Z after the last update, see `filtering.health_flags`; 0 before the first."""
        return 0 if self.observed is None else int(self.observed.flags[-1])

    def advance(self, data: ArrayLike, rows: ArrayLike, seed: tf.Tensor) -> Observed:
        """Make one update for each of K minibatches, in one call of a graph.

        :param data: [N, n_v] of 0 and 1; a tensor saves copying it at each call, and one of bool converting it.
        :param rows: [K, B], the rows of each minibatch; K is at most `MAX_BLOCK`.
        :param seed: int32 [2]; the noise is a function of it and of the number of the update.
        :return: what each update saw, arrays [K] (swap rates [K, M-1]).
        :raises ValueError: if `data` or `rows` are not as described.
        :raises FloatingPointError: if parameters or log Z are no longer finite, and which.
        """
        index = np.asarray(rows)
        if index.ndim != 2 or not 1 <= len(index) <= MAX_BLOCK:
            raise ValueError(f"rows must be [K, B] with K from 1 to {MAX_BLOCK}, got shape {list(index.shape)}.")
        table: tf.Tensor = tf.convert_to_tensor(data)
        n_v = self._structure.rbm.b.shape[0]
        if table.shape.rank != 2 or table.shape[1] != n_v:
            raise ValueError(f"data must have {n_v} columns, one for each visible unit, got shape {table.shape}.")
        # XLA would take the first or the last row in place of one that is not there.
        if index.dtype.kind not in "iu" or index.min(initial=0) < 0 or index.max(initial=0) >= len(table):
            raise ValueError(f"rows must be whole numbers from 0 to {len(table) - 1}, those of rows of the data.")
        done = int(self.store.leaves[0])
        # Calls end where parameters are kept along the way.
        nodes = [i for i in range(1, len(index) + 1) if self._keep_node and is_node(done + i)]
        ends = sorted({*nodes, len(index)})
        pieces = []
        for start, end in zip([0, *ends], ends, strict=False):
            pieces.append(self._advance(table, index[start:end], seed))
            if self._keep_node and end in nodes:
                self._keep_node(_saved(self.state))
        self.observed = Observed._make(np.concatenate(parts) for parts in zip(*pieces, strict=True))
        return self.observed

    def _advance(self, data: tf.Tensor, index: NDArray[np.integer], seed: tf.Tensor) -> Observed:
        # Filled up to one size, so that one graph serves all blocks.
        padded = np.zeros([MAX_BLOCK, index.shape[1]], np.int32)
        padded[: len(index)] = index
        state, every = self._updates(self.state, data, tf.constant(padded), tf.constant(len(index)), seed)
        observed = Observed._make(value.numpy()[: len(index)] for value in every)
        self._assign(state)
        self.store.swap_rates.assign(np.concatenate([self.store.swap_rates.numpy(), observed.swap_rate]))
        if wrong := not_finite(state, observed):
            raise FloatingPointError(wrong)
        return observed

    def mean_swap_rates(self) -> NDArray[np.float64] | None:
        """Swap rates of neighbouring temperatures, [M-1], averaged over the updates since the last call; None if there
        were none."""
        rates = self.store.swap_rates.numpy()
        self.store.swap_rates.assign(rates[:0])
        return np.mean(rates, axis=0) if len(rates) else None

    def spawn(self) -> int | None:
        """Add a temperature if swaps or round trips ask for one, and there are fewer than `spawn_up_to`.

        :return: the level that it has, or None.
        """
        # Where swaps or round trips ask for one; swap rates of the old ladder say nothing of the new one.
        state = self.state
        if self.num_temps >= self.spawn_up_to:
            return None
        level = spawn_level(state.ladder, np.asarray(state.tracker.health.swap_rate))
        if level is None:
            return None
        self._assign(spawn(state, level))
        self.store.swap_rates.assign(tf.zeros([0, self.num_temps - 1], tf.float64))
        return level + 1

    def along(self, until: int) -> list[RBM]:
        """The parameters that were kept along the way up to this update, in their order; none without a folder."""
        if self.trajectory is None or not any(is_node(step) for step in range(1, until + 1)):
            return []
        return load_nodes(self.trajectory, until=until)

    def saved(self) -> SavedRBM:
        """The parameters of :attr:`model` with their tracked log Z, as they are now."""
        return _saved(self.model)

    def _assign(self, state: SMLState) -> None:
        self._model = None
        for variable, leaf in zip(self.store.leaves, tf.nest.flatten(state), strict=True):
            variable.assign(leaf)


def new_trainer(
    data: ArrayLike,
    hidden: int,
    config: SMLConfig,
    seeds: Callable[[str], tf.Tensor],
    *,
    num_temps: int = 10,
    num_chains: int = 20,
    modes: int = 0,
    dtype: str = "float32",
    visible: Visible = Bernoulli(),
    hidden_units: Visible = Bernoulli(),
    trajectory: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Trainer:
    """A new RBM of the data [N, n_v] with so many hidden units, ready to be trained.

    :param seeds: gives the seeds, int32 [2], of the streams "init", "chains" and "average".
    :param modes: start from so many leading modes of the data, see :mod:`rbm_tracking.model.rbm`; 0: from noise.
    :param visible: what the visible units are.
    :param hidden_units: what the hidden units are.
    :param trajectory: folder for the parameters along the way, see `trajectories.load_nodes`; None: they are not kept.
    :param options: of :class:`Trainer`.

    Other arguments and errors as for `rbm.initial_rbm` and `state.initial_state`.
    """
    seed = seeds("init")
    dtype = tf.as_dtype(dtype)
    for units in (visible, hidden_units):
        if modes and units != Bernoulli():
            raise ValueError(f"a start from modes is for bits, got {type(units).__name__} units; leave out modes.")
    # From the leading modes of the data, or from noise.
    if modes:
        rbm = low_rank_rbm(hidden, modes, seed=seed, data=data, dtype=dtype)
    else:
        rbm = initial_rbm(hidden, seed=seed, data=data, dtype=dtype, visible=visible, hidden=hidden_units)
    # Chains, ladder and filter; parameters along the way go to a folder.
    ladder = linear_ladder(num_temps)
    state = initial_state(rbm, ladder, num_chains, seed=seeds("chains"), data=data, config=config)
    if trajectory is not None:
        options["keep_node"] = keep_in(trajectory)
    trainer = Trainer(state, config, seed=seeds("average"), **options)
    trainer.trajectory = trajectory
    return trainer


def _saved(state: SMLState) -> SavedRBM:
    log_z = float(state.tracker.mean[0])
    std = float(log_z_std(state.tracker))
    return SavedRBM(state.rbm, log_z, std, state.ladder.beta.numpy(), int(state.step))

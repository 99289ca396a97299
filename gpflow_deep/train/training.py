"""Training: one step as a `tf.function`, and a `Trainer` that makes the steps from one number to another.

    trainer = Trainer(model, TrainingConfig(learning_rate=0.01), num_steps=5000)
    for first in range(0, 5000, 100):
        bound = trainer.advance(batch_at, first, 100, seed)         # the steps first, ..., first + 99
        if trainer.is_done(first + 100):                            # it may settle earlier
            break

The batch and the draws of a step are functions of its number, so that training can be taken up again at any step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter, RegressionData
from gpflow.likelihoods import Gaussian
from gpflow.optimizers import NaturalGradient

from ..layers import Layer
from ..model.deep_gp import DeepGP
from ..model.quadrature import MonteCarlo
from ..model.upstream import mark_copies
from ..posteriors.collapsed import MAX_ROWS, fit_collapsed, has_collapsed_bound
from ..posteriors.noise import SquaredErrors, fit_noise, has_noise
from .course import WINDOW, Course, TrainingConfig

__all__ = ["Trainer", "TrainingConfig", "clear_errors", "first_message", "make_train_step"]

CURE = "Lower learning_rate (or natgrad_gamma), or look for outliers in the data."


class Trainer:
    """A deep GP with all that changes while it is trained.

    Natural gradients train the last layer's q(u) if it is marked untrainable, as `ModelConfig.build` does on request;
    Adam trains everything else. Where the learning rate falls to 0, the last step lowers Gaussian noise to its best
    value given everything else, see `fit_noise`; or, from 100 steps on, climbs the collapsed bound of a single layer by
    L-BFGS, in a tenth as many iterations as there were steps, see `fit_collapsed`.

    :ivar model: the deep GP.
    :ivar optimizer: Keras' Adam.
    :ivar seconds: spent in `advance`, a variable.
    :ivar course: when the learning rate falls and training ends; None without `num_steps`.

    :param num_steps: the most steps, of which the last ones have a falling learning rate, see `TrainingConfig`; every
        step has the same one if None.
    :param strategy: of `tf.distribute`; build the model in its scope, see `make_train_step`.
    :param data: all training rows (X [N, D], Y [N, P]) in the units of the model, if they are at hand: of up to
        `collapsed.MAX_ROWS` rows a single layer with Gaussian noise gets its collapsed bound.
    :raises ValueError: if a step size for natural gradients is given, but the model does not use them.
    """

    def __init__(
        self,
        model: DeepGP,
        config: TrainingConfig = TrainingConfig(),
        *,
        num_steps: int | None = None,
        strategy: tf.distribute.Strategy | None = None,
        data: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        if strategy is not None:
            mark_copies(model)
        # The step size of natural gradients, if they train q(u) of the last layer.
        gamma = config.natgrad_gamma
        if not _is_left_to_natural_gradients(model.layers[-1]):
            if gamma is not None:
                raise ValueError(
                    f"natgrad_gamma={gamma} has no effect, as Adam trains every layer of this model; set natgrad to "
                    "true, or leave natgrad_gamma out."
                )
        elif gamma is None:
            gamma = 0.1 if isinstance(model.likelihood, Gaussian) else 0.01
        # All that changes while the model is trained.
        with nullcontext() if strategy is None else strategy.scope():
            self.optimizer = tf.keras.optimizers.Adam(config.rate)
        self.model = model
        self.seconds = tf.Variable(0.0, dtype=tf.float64)
        self._strategy = strategy
        rows = float(model.num_data or 1)
        self.course = None if num_steps is None else Course(config, num_steps, num_data=rows)
        is_small = data is not None and strategy is None and len(data[0]) <= MAX_ROWS
        self._data = data if is_small else None
        self._config = config
        self._bound: tf.Tensor | None = None
        self._num_steps = 0
        self._learning_rate = -1.0
        self._errors = SquaredErrors(model)
        self._step = make_train_step(model, self.optimizer, natgrad_gamma=gamma, strategy=strategy)

    def restart(self, num_steps: int, *, num_data: float) -> None:
        """Begin another course at step 0 without the optimiser's memory; the compiled step and the parameters stay.

        :param num_steps: as of the constructor.
        :param num_data: rows that the bound is of.
        """
        for variable in self.optimizer.variables:
            variable.assign(tf.zeros_like(variable))
        self.course = Course(self._config, num_steps, num_data=num_data)
        self._bound = None
        self._num_steps = 0
        self._learning_rate = -1.0

    @property
    def max_steps(self) -> int | None:
        """The most steps that are made; None without `num_steps`."""
        return None if self.course is None else self.course.num_steps

    @property
    def is_settled(self) -> bool:
        """Whether the bound stopped rising before the last step."""
        return self.course is not None and self.course.is_settled

    def advance(self, batch_at: Callable[[int], RegressionData], first: int, count: int, seed: tf.Tensor) -> tf.Tensor:
        """Make the steps first, ..., first + count - 1; none from `course.end` on, which settling can bring nearer.

        :param batch_at: the minibatch (X, Y) of a step, in standardised units; with a strategy distributed.
        :param seed: int32 [2]; step t takes its draws from `tf.random.fold_in(seed, t)`.
        :return: the bound before the last update, [], nats, NaN without any; it is checked only by `scalars`.
        :raises FloatingPointError: if a factorisation or a check in the graph fails.
        :raises ValueError: if the model predicts from samples, which would stay as they are.
        """
        # Steps by their numbers: batch, learning rate and draws are functions of these.
        self.model.refuse_if_sampled()
        start = time.monotonic()
        for t in range(first, first + count):
            if self.is_done(t):
                break
            batch = batch_at(t)
            self._set_learning_rate(t)
            with clear_errors(f"step {t + 1} failed: ", CURE):
                self._bound = self._step(batch, tf.random.fold_in(seed, t))["elbo_nats"]
            self._num_steps = t + 1
            # The bounds so far say whether this was the last step at the full learning rate.
            if self.course is not None:
                self.course.observe(t, self._bound)
                if self.is_done(t + 1) and self.course.config.decay_share:
                    self._end(batch_at, t)
        self.seconds.assign_add(time.monotonic() - start)
        return tf.constant(np.nan, tf.float64) if self._bound is None else self._bound

    def is_done(self, step: int) -> bool:
        """Whether so many steps are all that have to be made."""
        return self.course is not None and step >= self.course.end

    def _end(self, batch_at: Callable[[int], RegressionData], t: int) -> None:
        """What the last step t does beside a step."""
        # A single layer of few rows is climbed to the end; of others the noise alone.
        if self._data is not None and t + 1 >= WINDOW and has_collapsed_bound(self.model):
            fit_collapsed(self.model, *self._data, max_iter=(t + 1) // 10)
        elif has_noise(self.model):
            fit_noise(self._errors, batch_at, t, strategy=self._strategy)

    def _set_learning_rate(self, step: int) -> None:
        if self.course is not None:
            rate = self.course.learning_rate(step)
            if rate != self._learning_rate:
                self.optimizer.learning_rate = self._learning_rate = rate

    def scalars(self) -> dict[str, float]:
        """The bound before the last update in nats, and the seconds in `advance` so far.

        :raises FloatingPointError: if the bound is not finite.
        """
        bound = np.nan if self._bound is None else float(self._bound)
        if not np.isfinite(bound):
            raise FloatingPointError(f"the bound is {bound} at step {self._num_steps}. {CURE}")
        return {"train/elbo_nats": bound, "train/seconds": float(self.seconds)}

    def state(self) -> dict[str, object]:
        """All that changes, by name, for a checkpoint.

        :raises FloatingPointError: naming parameters that are not finite, or if the bound is not.
        """
        # A checkpoint of what is not finite could not go on.
        bad = [variable.name for variable in self.model.trainable_variables if not np.all(np.isfinite(variable))]
        if bad:
            raise FloatingPointError(
                f"parameters are not finite after step {self._num_steps}: {', '.join(bad[:3])}. {CURE}"
            )
        if self._bound is not None:
            self.scalars()
        state: dict[str, object] = {"model": self.model, "optimizer": self.optimizer, "seconds": self.seconds}
        if self.course is not None:
            self.course.flush()
            state["course"] = self.course
        return state


@contextmanager
def clear_errors(what: str = "", cure: str = "") -> Iterator[None]:
    """Within a `with` statement a failed check of TensorFlow becomes a `FloatingPointError` with its own words.

    :param what: goes before them.
    :param cure: goes behind them.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        raise FloatingPointError(f"{what}{first_message(error)} {cure}".strip()) from error


def first_message(error: tf.errors.OpError) -> str:
    """What a failed check says, without TensorFlow's account of where the graph was built."""
    # From what the check itself says on; or the last line, where TensorFlow puts the reason.
    text = error.message.split("[[{{node")[0]
    for marker in ("assertion failed: [", "Cholesky factorisation failed", "gpflow.Parameter: "):
        if marker in text:
            text = text[text.index(marker) :].removeprefix("assertion failed: [")
            break
    else:
        text = ([line for line in text.splitlines() if line.strip()] or [text])[-1]
    return " ".join(text.rstrip("] \t\n").replace("] [", " ").split())


def make_train_step(
    model: DeepGP,
    optimizer: tf.keras.optimizers.Optimizer,
    *,
    natgrad_gamma: float | None = None,
    jit_compile: bool = False,
    strategy: tf.distribute.Strategy | None = None,
) -> Callable[[RegressionData, tf.Tensor], dict[str, tf.Tensor]]:
    """A compiled function `(batch, seed) -> scalars` that updates the parameters once.

    :param optimizer: a Keras optimizer (`tf.keras.optimizers.Adam(0.01)`) for the trainable parameters.
    :param natgrad_gamma: step size of natural gradients for the last layer's q(u), or None to leave it to `optimizer`.
        The layer's `q_mu` and `q_sqrt` have to be marked untrainable, as the presets do on request.
    :param jit_compile: compile with XLA; slower on a CPU.
    :param strategy: build model and optimizer in its scope, and the batch has to be distributed over its replicas, in
        equal parts: then the step is that of one device on all their rows. Each replica takes its rows of the draws
        that one device would make (but for likelihoods that draw themselves, as Softmax, it draws its own).
    :return: the step. `seed`, int32 [2], fixes its draws. `scalars` has "elbo_nats", the bound before the update.
    :raises ValueError: if the last layer's q(u) is trainable and `natgrad_gamma` is given, or untrainable without it.
    """
    if strategy is not None:
        mark_copies(model)
    # Natural gradients train q(u) of the last layer if and only if Adam does not.
    last = model.layers[-1]
    is_left_out = _is_left_to_natural_gradients(last)
    if natgrad_gamma is None:
        if is_left_out:
            raise ValueError(
                "q_mu and q_sqrt of the last layer are untrainable, so nothing would train them: give natgrad_gamma, "
                "or call gpflow.set_trainable(model.layers[-1].q_mu, True), and so for q_sqrt."
            )
    elif not is_left_out or getattr(last, "q_diag", False):
        raise ValueError(
            "natgrad_gamma needs a full q_sqrt and q_mu and q_sqrt of the last layer marked untrainable: "
            "use gpflow.set_trainable(model.layers[-1].q_mu, False), and so for q_sqrt, or build it with "
            "natural_gradients=True."
        )
    # Keras makes its variables now, outside of the graph.
    variables = model.trainable_variables
    natgrad = None if natgrad_gamma is None else NaturalGradient(gamma=natgrad_gamma)
    if strategy is not None:
        with strategy.scope():
            if not optimizer.built:
                optimizer.build(variables)
        return _distributed_step(model, optimizer, natgrad, variables, strategy)
    if not optimizer.built:
        optimizer.build(variables)

    def step(batch: RegressionData, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = model.training_loss(batch, seed=seed)
        bound = -loss - model.log_prior_density()  # before the parameters change
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        if natgrad is not None:
            natgrad.minimize(lambda: model.training_loss(batch, seed=seed), [(last.q_mu, last.q_sqrt)])
        return {"elbo_nats": bound}

    # Without AutoGraph, which nothing here needs, the first trace takes a quarter of the time. Batches of several
    # sizes, as of a stream, need two traces.
    return tf.function(step, jit_compile=jit_compile, autograph=False, reduce_retracing=True)


def _is_left_to_natural_gradients(layer: Layer) -> bool:
    """Whether a layer has a Gaussian q(u) by `q_mu` and `q_sqrt`, and both are marked untrainable."""
    parts = [getattr(layer, name, None) for name in ("q_mu", "q_sqrt")]
    return all(isinstance(part, Parameter) and not part.trainable for part in parts)


def _distributed_step(
    model: DeepGP,
    optimizer: tf.keras.optimizers.Optimizer,
    natgrad: NaturalGradient | None,
    variables: Sequence[tf.Variable],
    strategy: tf.distribute.Strategy,
) -> Callable[[RegressionData, tf.Tensor], dict[str, tf.Tensor]]:
    # Natural gradients need those of q(u) from all replicas.
    last = model.layers[-1]
    q_variables = [] if natgrad is None else [part.unconstrained_variable for part in (last.q_mu, last.q_sqrt)]

    def bound_and_gradients(
        batch: RegressionData, seed: tf.Tensor, sources: Sequence[tf.Variable]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """This replica's share: over the replicas the results add up to those of all rows."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            context = tf.distribute.get_replica_context()
            bound = _replica_elbo(model, batch, seed, context) / context.num_replicas_in_sync
            loss = -bound - model.log_prior_density() / context.num_replicas_in_sync
        return bound, tape.gradient(loss, sources)

    def adam(batch: RegressionData, seed: tf.Tensor) -> tf.Tensor:
        bound, gradients = bound_and_gradients(batch, seed, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))  # Keras adds up those of all replicas
        return bound

    def q_gradients(batch: RegressionData, seed: tf.Tensor) -> list[tf.Tensor]:
        return bound_and_gradients(batch, seed, q_variables)[1]

    def step(batch: RegressionData, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        # Each replica has its share of the rows, and the sum of their bounds is that of all.
        bound = strategy.reduce("SUM", strategy.run(adam, args=(batch, seed)), axis=None)
        if natgrad is not None:
            shares = strategy.run(q_gradients, args=(batch, seed))
            q_mu_gradient, q_sqrt_gradient = (strategy.reduce("SUM", share, axis=None) for share in shares)
            # `minimize` would not add up the gradients of the replicas: it gets a loss whose gradients are their sums.
            natgrad.minimize(
                lambda: tf.reduce_sum(q_mu_gradient * q_variables[0]) + tf.reduce_sum(q_sqrt_gradient * q_variables[1]),
                [(last.q_mu, last.q_sqrt)],
            )
        return {"elbo_nats": bound}

    return tf.function(step, autograph=False)


def _replica_elbo(
    model: DeepGP, batch: RegressionData, seed: tf.Tensor, context: tf.distribute.ReplicaContext
) -> tf.Tensor:
    """The bound with this replica's rows of the draws for all rows; its mean over the replicas is that of all rows."""
    if not isinstance(model.integrator, MonteCarlo):
        return model.elbo(batch, seed=seed)
    # The draws that one device would make for all rows, and of these the replica's.
    X = batch[0]
    dims = [layer.num_latent_gps for layer in model.layers[:-1]]
    count = model.integrator.num_components(dims, model.num_samples)
    rows = tf.shape(X)[0]
    noise = model.integrator.noise(dims, count, rows * context.num_replicas_in_sync, seed, X.dtype)
    start = rows * tf.cast(context.replica_id_in_sync_group, tf.int32)
    replica_noise = [eps[:, start : start + rows] for eps in noise]
    return model.elbo(batch, seed=tf.random.fold_in(seed, context.replica_id_in_sync_group), noise=replica_noise)

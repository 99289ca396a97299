"""Training: gradient descent on the description length, many steps in one compiled call (Gregor et al., 2014, Section
4).

    trainer = Trainer(model, TrainingConfig(learning_rate=1e-3), num_data=len(x))
    observed = trainer.advance(x, rows, seed)     # rows [K, B]: the minibatches of K steps

With an eye on validation rows, and without a folder:

    course = Course(Trainer(model, config, num_data=len(x)), x, x_valid, seed=0)
    course.advance(5000, patience=10)
    course.best_value, course.best_step           # nats a row of the validation rows, at the best evaluation
    model = course.best()

Noise is a function of (seed, step): training that is stopped and continued gives the same bits.
"""

from __future__ import annotations

import contextlib
import functools
import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from darn.model.description_length import description_length
from darn.model.gradients import Estimate, check_estimator, estimate, sparsity_penalty
from darn.model.model import DARN, check_data
from darn.model.replicas import own_rows
from darn.model.serialization import named_variables
from darn.model.weight_noise import WeightNoise, with_values
from darn.train.optimization import TrainingConfig, in_place, make_optimizer, move_means
from gpflow_deep_base.runtime.tracing import counted_alone
from gpflow_deep_base.seeds import Seed, as_seed
from gpflow_deep_base.stopping import Best

__all__ = [
    "INTERVALS",
    "MAX_BLOCK",
    "Course",
    "Observed",
    "Trainer",
    "TrainingConfig",
    "evaluation_interval",
    "minibatch_rows",
    "some_rows",
]

MAX_BLOCK = 250
"""Most steps in one call of :meth:`Trainer.advance`."""

#: Steps between evaluations: all divide 1,000, or are divided by 100, so that blocks of steps stay long.
INTERVALS = (25, 50, 100, 200, 500, 1000)

_MAX_VALID_ROWS = 5000  # of an evaluation during training


class Observed(NamedTuple):
    """Means over the minibatch of each of K steps, [K], in nats; zero for steps that were not made.

    :ivar objective: what was minimised, with penalties.
    :ivar prior: -log p(h).
    :ivar bits_back: log q(h | x).
    :ivar visible: -log p(x | h).
    :ivar activity: mean of q over units.
    :ivar gradient_norm: of the whole gradient; of the last step alone.
    """

    objective: tf.Tensor
    prior: tf.Tensor
    bits_back: tf.Tensor
    visible: tf.Tensor
    activity: tf.Tensor
    gradient_norm: tf.Tensor


class Trainer(tf.Module):
    """A model with all that changes while it is trained.

    :ivar optimizer: Keras optimizer; its `iterations` count the steps.
    :ivar noise: `WeightNoise` or None.
    :ivar averages: running means of the trainable variables; empty without averaging.

    :param num_data: N, which weighs the KL of weight noise against the data.
    :param strategy: of `tf.distribute`: its replicas share the rows of each minibatch, and do what one device does with
        all of them. The model has to be made in its scope.
    :param jit_compile: let :meth:`advance` compile with XLA: faster for small models, after a minute or less.
    :raises ValueError: if the estimator does not fit the model, or for XLA on several replicas.
    """

    def __init__(
        self,
        model: DARN,
        config: TrainingConfig,
        *,
        num_data: int,
        strategy: tf.distribute.Strategy | None = None,
        jit_compile: bool = False,
        name: str = "trainer",
    ) -> None:
        super().__init__(name=name)
        check_estimator(model, config.estimator, config.entropy)
        if num_data < 1:
            raise ValueError(f"num_data must be at least 1, got {num_data}.")
        self.model = model
        self.config = config
        self.num_data = num_data
        self._strategy = strategy
        self._variables = model.trainable_variables
        self.noise = None
        # All that is updated is made on the devices of the strategy: the optimizer's moments, noise, averages.
        with self._scope():
            self.optimizer = make_optimizer(
                config.optimizer,
                config.learning_rate,
                half_life=config.half_life,
                warm_up=config.warm_up,
                cosine=config.cosine,
                momentum=config.momentum,
                weight_decay=config.weight_decay,
            )
            if config.noise.weight_noise is not None:
                self.noise = WeightNoise(
                    self._variables, initial_std=config.noise.initial_std, kind=config.noise.weight_noise
                )
            self.averages = [tf.Variable(v, trainable=False) for v in self._variables] if config.average else []
            if self.noise is not None and config.weight_decay:
                self.optimizer.exclude_from_weight_decay(var_list=self.noise.log_variances)
            self.optimizer.build([*self._variables, *(self.noise.log_variances if self.noise else [])])
        self._seen: Callable[[], tf.Tensor | None] = lambda: None
        self._run = self.compiled_steps(jit_compile=jit_compile)

    def advance(self, data: ArrayLike, rows: ArrayLike, seed: Seed) -> Observed:
        """Make one step for each of K minibatches, in one call of a graph that is made once.

        :param data: [N, n_x] of what the model is of; a tensor saves copying and checking it at each call.
        :param rows: [K, B], the rows of each minibatch; K is at most `MAX_BLOCK`.
        :param seed: the noise is a function of it and of the number of the step.
        :return: arrays [K].
        :raises ValueError: for data that the model cannot have produced, before any step.
        :raises FloatingPointError: if the objective is no longer finite.
        """
        # Blocks of one size, of which the first rows count: one graph for all.
        index = np.asarray(rows)
        if index.ndim != 2 or 0 in index.shape or len(index) > MAX_BLOCK or index.dtype.kind not in "iu":
            raise ValueError(
                f"rows must be [K, B] with K from 1 to {MAX_BLOCK}, whole numbers, got shape {list(index.shape)} of "
                f"{index.dtype}."
            )
        padded = np.zeros([MAX_BLOCK, index.shape[1]], np.int32)
        padded[: len(index)] = index
        every = self._run(data, padded, len(index), seed)
        observed = Observed._make(value.numpy()[: len(index)] for value in every)
        if not np.isfinite(observed.objective).all():
            raise FloatingPointError(
                f"the description length is no longer finite after step {int(self.optimizer.iterations)}: training has "
                "diverged. Lower learning_rate, or set clip_norm=10."
            )
        return observed

    def compiled_steps(self, *, jit_compile: bool = False) -> Callable[..., Observed]:
        """(data [N, n_x], rows [K, B], count [], seed [2]) to `Observed`: `count` steps, number t with the minibatch
        rows[t] and noise of (seed, `optimizer.iterations`). Its graph is made once for each shape of data and rows.

        :param jit_compile: compile with XLA: faster for small models, after a minute or less of compilation.
        :raises ValueError: for XLA on several replicas.
        """
        if jit_compile and self._strategy is not None:
            raise ValueError("XLA is for one device here; leave out jit_compile (--jit), or the strategy.")

        @functools.partial(tf.function, autograph=False, jit_compile=jit_compile)
        @counted_alone
        def run(data: tf.Tensor, rows: tf.Tensor, count: tf.Tensor, seed: tf.Tensor) -> Observed:
            if data.dtype == tf.uint8:
                data = tf.cast(data, tf.bool)  # a GPU has no kernel that gathers uint8
            # Room for all steps of a block, of which `count` are made: the shape of the result is static.
            num_steps = rows.shape[0]
            history = tf.TensorArray(self.model.dtype, num_steps, element_shape=[len(Observed._fields)])

            def step(t: tf.Tensor, history: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
                # Noise by the number of all steps so far, and not of this block.
                x = tf.cast(tf.gather(data, rows[t]), self.model.dtype)
                key = tf.random.fold_in(seed, tf.cast(self.optimizer.iterations, tf.int32))
                return t + 1, history.write(t, tf.stack(self.step(x, key, is_last=t + 1 >= count)))

            history = tf.while_loop(lambda t, _: t < count, step, (0, history))[1]
            return Observed(*tf.unstack(history.stack(), axis=1))

        def checked(data: ArrayLike, rows: ArrayLike, count: int | tf.Tensor, seed: Seed) -> Observed:
            self._check(data, rows)
            index = tf.convert_to_tensor(rows, tf.int32)
            number = tf.convert_to_tensor(count, tf.int32)
            return run(tf.convert_to_tensor(data), index, number, as_seed(seed))

        return checked

    def _check(self, data: ArrayLike, rows: ArrayLike) -> None:
        """Refuse rows that are not there, and data that the model cannot have produced; the same tensor of data is
        looked at once, for it cannot change."""
        if self._seen() is not data:
            check_data(data, self.model.config)
            if isinstance(data, tf.Tensor):
                self._seen = weakref.ref(data)
        # TensorFlow's gather would take rows beyond the end for zeros on a GPU.
        num = np.shape(data)[0]
        index = np.asarray(rows)
        if index.size and not 0 <= index.min() <= index.max() < num:
            raise ValueError(f"rows must be from 0 to {num - 1}, those of data, got {index.min()} to {index.max()}.")

    def step(self, x: tf.Tensor, seed: tf.Tensor, is_last: bool | tf.Tensor = True) -> Observed:
        """One update by the minibatch x [B, n_x] of the model's dtype; each of the result is [].

        :param is_last: of several: the norm of the gradient is wanted.
        """
        with self._scope():
            return self._step(x, tf.unstack(tf.random.experimental.stateless_split(seed, 3)), is_last)

    def _step(self, x: tf.Tensor, seeds: Sequence[tf.Tensor], is_last: bool | tf.Tensor) -> Observed:
        # Noise in all steps, in none, or by the number of the step, which the graph decides.
        if self.noise is None:
            observed = self._plain_step(x, seeds, is_last)
        elif not self.config.noise.noise_from and self.config.noise.noise_until is None:
            observed = self._noisy_step(self.noise, x, seeds, is_last)
        else:
            # Weight noise for some of the steps.
            noise = self.noise
            step = tf.cast(self.optimizer.iterations, tf.int32)
            until = self.config.noise.noise_until
            is_on = step >= self.config.noise.noise_from
            observed = tf.cond(
                is_on if until is None else tf.logical_and(is_on, step < until),
                lambda: self._noisy_step(noise, x, seeds, is_last),
                lambda: self._plain_step(x, seeds, is_last),
            )
        if self.averages:
            move_means(self.averages, self._variables, self.optimizer.iterations, self.config.average)
        return observed

    def _plain_step(self, x: tf.Tensor, seeds: Sequence[tf.Tensor], is_last: bool | tf.Tensor) -> Observed:
        gradients, observed = self._gradients(None, x, seeds, is_last)
        self._apply(gradients, self._variables)
        return observed

    def _noisy_step(
        self, noise: WeightNoise, x: tf.Tensor, seeds: Sequence[tf.Tensor], is_last: bool | tf.Tensor
    ) -> Observed:
        # Gradients at drawn weights, then those of means and variances.
        eps = noise.draw(seeds[2])
        at_draw, observed = self._gradients(noise.perturbed(eps), x, seeds, is_last)
        d_mean, d_log_variance = noise.gradients(self._variables, at_draw, eps, self.num_data, x.shape[0])
        observed = observed._replace(objective=observed.objective + noise.kl() / self.num_data)
        self._apply([*d_mean, *d_log_variance], [*self._variables, *noise.log_variances])
        return observed

    def _apply(self, gradients: Sequence[tf.Tensor], variables: Sequence[tf.Variable]) -> None:
        """Let the optimizer change the variables, by gradients for all rows."""
        # Clipped by the norm for all rows, not by that of a replica's part.
        if self.config.clip_norm is not None:
            gradients = tf.clip_by_global_norm(gradients, self.config.clip_norm)[0]
        if self._strategy is None:
            self.optimizer.apply(gradients, variables)
            return
        count = self._strategy.num_replicas_in_sync

        def on_replica(gradients: Sequence[tf.Tensor]) -> None:  # Keras adds up the gradients of the replicas
            self.optimizer.apply([gradient / count for gradient in gradients], variables)

        self._strategy.run(on_replica, args=(gradients,))

    def _scope(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext() if self._strategy is None else self._strategy.scope()

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Within a `with` statement the model has the running means of its parameters; without averaging nothing
        changes."""
        return in_place(self._variables, self.averages) if self.averages else contextlib.nullcontext()

    def copied(self) -> DARN:
        """A model of its own with the parameters as they are now, or with their running means: what to keep of an
        evaluation."""
        model = DARN(self.model.config)
        with self.averaged():
            pairs = zip(named_variables(model).values(), named_variables(self.model).values(), strict=True)
            for own_variable, variable in pairs:
                own_variable.assign(variable)
        return model

    def gradient_noise(self, x: tf.Tensor, seed: tf.Tensor, num_draws: int = 16) -> float:
        """Standard deviation of the estimator relative to the gradient, both of the logits of the first encoder layer,
        or of their biases where its units see each other: the root of the total variance over the norm of the mean,
        over the rows x [B, n_x] and `num_draws` draws of the bits.

        0 without stochastic layers.
        """
        if not self.model.encoders:
            return 0.0
        # The total variance over the norm of the mean, whose own noise is taken from it.
        draws = tf.stack([self._logit_gradient(x, tf.random.fold_in(seed, i)) for i in range(num_draws)]).numpy()
        spread = draws.var(axis=0, ddof=1).sum()
        norm = np.square(draws.mean(axis=0)).sum()
        return float(np.sqrt(spread / max(norm - spread / num_draws, 1e-30)))

    def _logit_gradient(self, x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            estimated = self._estimate(self.model, x, (seed, tf.random.fold_in(seed, 0)))
            loss = tf.reduce_sum(estimated.loss)
        of_rows = self.model.config.encoder == "factorial"  # else logits are of bits that were drawn before
        return tape.gradient(loss, estimated.logits[0] if of_rows else self.model.encoders[0].conditional.bias)

    def _estimate(self, model: DARN, x: tf.Tensor, seeds: Sequence[tf.Tensor]) -> Estimate:
        # Noise of this replica's rows; orders of mixtures are drawn by the second seed.
        config = self.config
        copies = config.num_samples if config.estimator == "rloo" else 1
        return estimate(
            model.in_training(seeds[1]),
            x,
            own_rows(lambda rows: model.encoder_noise(rows, seeds[0]), tf.shape(x)[0], copies),
            estimator=config.estimator,
            entropy=config.entropy,
            num_samples=config.num_samples,
        )

    def _gradients(
        self, at: Sequence[tf.Tensor] | None, x: tf.Tensor, seeds: Sequence[tf.Tensor], is_last: bool | tf.Tensor
    ) -> tuple[list[tf.Tensor], Observed]:
        """Of the objective by the parameters, at values `at` of these, or at those that they have."""
        # On several replicas: each has its part of the rows, and gradients are averaged.
        if self._strategy is None:
            gradients, values = self._own_gradients(at, x, seeds)
        else:
            size, rest = divmod(x.shape[0], self._strategy.num_replicas_in_sync)
            if rest:
                count = self._strategy.num_replicas_in_sync
                raise ValueError(f"a minibatch must be a multiple of the {count} replicas, got {x.shape[0]} rows.")

            def on_replica(
                at: Sequence[tf.Tensor] | None, x: tf.Tensor, seeds: Sequence[tf.Tensor]
            ) -> tuple[list[tf.Tensor], tf.Tensor]:
                start = size * tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32)
                return self._own_gradients(at, x[start : start + size], seeds)

            parts = self._strategy.run(on_replica, args=(at, x, seeds))
            gradients, values = tf.nest.map_structure(
                lambda part: self._strategy.reduce(tf.distribute.ReduceOp.MEAN, part, axis=None), parts
            )
        # The norm is computed where it is wanted.
        norm = tf.cond(
            tf.constant(is_last) if isinstance(is_last, bool) else is_last,
            lambda: tf.linalg.global_norm(gradients),
            lambda: tf.zeros([], self.model.dtype),
        )
        return gradients, Observed._make([*tf.unstack(values), norm])

    def _own_gradients(
        self, at: Sequence[tf.Tensor] | None, x: tf.Tensor, seeds: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Gradients of the objective for the rows of this replica, and the first fields of `Observed`, [5]."""
        config = self.config
        parameters = self._variables if at is None else at
        # The objective at the drawn weights, or at the parameters themselves.
        with tf.GradientTape() as tape:
            if at is not None:
                tape.watch(at)
            model = self.model if at is None else with_values(self.model, self._variables, at)
            estimated = self._estimate(model, x, seeds)
            objective = tf.reduce_mean(estimated.loss)
            if config.sparsity is not None:
                objective += config.sparsity_weight * sparsity_penalty(estimated, config.sparsity)
        gradients = tape.gradient(objective, parameters, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        # What the step is judged by: parts of the description length, and the units' activity.
        parts = [tf.reduce_mean(part) for part in (estimated.prior, estimated.bits_back, estimated.visible)]
        activity = tf.reduce_mean(tf.concat(estimated.q, axis=1)) if estimated.q else tf.zeros_like(objective)
        return gradients, tf.stack([objective, *parts, activity])


def evaluation_interval(num_rows: int, batch_size: int) -> int:
    """Steps between evaluations: an epoch, rounded up to one of :data:`INTERVALS`; the last one for longer epochs."""
    epoch = -(-num_rows // batch_size)
    return next((interval for interval in INTERVALS if interval >= epoch), INTERVALS[-1])


def minibatch_rows(num_rows: int, batch_size: int, seed: Seed, first: int, count: int) -> NDArray[np.int32]:
    """Rows of the minibatches of the steps first, ..., first + count - 1, [count, B]: each epoch another permutation, a
    pure function of the seed and the number of the step. B is `batch_size`, or all rows if there are fewer.
    """
    size = min(batch_size, num_rows)
    # Steps of an epoch: whole minibatches of its permutation.
    per_epoch = num_rows // size
    key = as_seed(seed).numpy().astype(np.uint32)
    batches = np.empty([count, size], np.int32)
    order = np.empty(0, np.int64)
    order_epoch = -1
    for i, step in enumerate(range(first, first + count)):
        epoch, place = divmod(step, per_epoch)
        if epoch != order_epoch:
            order = np.random.default_rng([*key, epoch]).permutation(num_rows)
            order_epoch = epoch
        batches[i] = order[place * size : (place + 1) * size]
    return batches


def some_rows(rows: np.ndarray, most: int, seed: Seed) -> np.ndarray:
    """At most so many of the rows [N, n], drawn by the seed and in their order; all of them if there are no more."""
    if len(rows) <= most:
        return rows
    rng = np.random.default_rng([*as_seed(seed).numpy().astype(np.uint32), most])
    return rows[np.sort(rng.choice(len(rows), most, replace=False))]


class Course:
    """A trainer on its way, and its best parameters so far by the description length of the validation rows.

    :ivar step: steps so far.
    :ivar best_kl: E[log q(h | x) - log p(h)] of the rows of the best evaluation, nats a row.
    :ivar values: all evaluations, (step, nats a row).

    :param x: training rows [N, n_x].
    :param valid: validation rows; 5,000 of them count, drawn by the seed.
    :param seed: of minibatches, noise, and of these rows.
    :param batch_size: rows of a minibatch.
    :param interval: steps between evaluations; that of :func:`evaluation_interval` if not given.
    :raises ValueError: for a number below 1.
    """

    def __init__(
        self,
        trainer: Trainer,
        x: ArrayLike,
        valid: ArrayLike,
        *,
        seed: Seed,
        batch_size: int = 100,
        interval: int | None = None,
    ) -> None:
        if batch_size < 1 or (interval is not None and interval < 1):
            raise ValueError(f"batch_size and interval must be at least 1, got {batch_size} and {interval}.")
        # The data once, as a tensor; seeds of minibatches, of noise in training, and of evaluations.
        self.trainer = trainer
        self.batch_size = batch_size
        self._x = tf.convert_to_tensor(x)
        self._valid = some_rows(np.asarray(valid), _MAX_VALID_ROWS, seed)
        self.interval = interval or evaluation_interval(len(self._x), batch_size)
        self._seeds = tf.unstack(tf.random.experimental.stateless_split(as_seed(seed), 3))
        self.step = 0
        self.best_kl = 0.0
        self._best_so_far = Best()
        self.values: list[tuple[int, float]] = []
        self._best: list[NDArray] = []

    def advance(self, until: int, patience: int | None = None) -> None:
        """Go on to step `until`, a multiple of the interval, or until `patience` evaluations in a row were no better.

        :raises FloatingPointError: if training diverges.
        """
        # Steps to the next evaluation, in blocks of one graph.
        while not self.is_done(until, patience):
            end = min(self.step + self.interval, until)
            while self.step < end:
                count = min(MAX_BLOCK, end - self.step)
                rows = minibatch_rows(len(self._x), self.batch_size, self._seeds[0], self.step, count)
                self.trainer.advance(self._x, rows, self._seeds[1])
                self.step += count
            self._evaluate()

    def is_done(self, until: int, patience: int | None = None) -> bool:
        """Whether :meth:`advance` has nothing to do."""
        return self.step >= until or self._best_so_far.is_done(patience or None)

    @property
    def best_step(self) -> int:
        """Steps before the best evaluation; 0 before the first."""
        return max(self._best_so_far.step, 0)

    @property
    def best_value(self) -> float:
        """Nats a row of the best evaluation; infinite before the first."""
        return self._best_so_far.value

    def stored(self, *, is_whole: bool = True) -> dict[str, NDArray]:
        """Arrays with which :meth:`restore` goes on to the same bits; not whole: what the evaluations gave."""
        numbers = {"step": self.step, "best_kl": self.best_kl, "values": self.values}
        numbers["best"] = self._best_so_far[:3]
        arrays = {"numbers": np.array(json.dumps(numbers))}
        if is_whole:
            arrays |= {f"now/{i}": variable.numpy() for i, variable in enumerate(self._variables())}
            arrays |= {f"best/{i}": value for i, value in enumerate(self._best)}
        return arrays

    def restore(self, stored: Mapping[str, NDArray]) -> None:
        """Take over what :meth:`stored` gave of a course that was made alike.

        :raises KeyError: if something is missing.
        """
        # What the evaluations gave.
        numbers = json.loads(str(stored["numbers"]))
        self.step = numbers["step"]
        self.best_kl = numbers["best_kl"]
        self.values = [(step, value) for step, value in numbers["values"]]
        self._best_so_far = Best(*numbers["best"])
        self._best = [stored[f"best/{i}"] for i in range(sum(name.startswith("best/") for name in stored))]
        # All that training changes, where it was stored.
        if "now/0" in stored:
            for i, variable in enumerate(self._variables()):
                variable.assign(stored[f"now/{i}"])

    def best(self) -> DARN:
        """A model of its own with the best parameters."""
        model = DARN(self.trainer.model.config)
        for variable, value in zip(named_variables(model).values(), self._best, strict=True):
            variable.assign(value)
        return model

    def _variables(self) -> list[tf.Variable]:
        """All that training changes."""
        trainer = self.trainer
        noise = [] if trainer.noise is None else trainer.noise.log_variances
        return [*named_variables(trainer.model).values(), *trainer.averages, *noise, *trainer.optimizer.variables]

    def _evaluate(self) -> None:
        # The description length of the validation rows by the running means, and the parameters if it is the best.
        with self.trainer.averaged():
            lengths = description_length(self.trainer.model, self._valid, seed=self._seeds[2])
            value = float(lengths.total.mean())
            self.values.append((self.step, value))
            self._best_so_far = self._best_so_far.after(self.step, value)
            if self._best_so_far.step == self.step:
                self.best_kl = float(lengths.kl.mean())
                self._best = [variable.numpy() for variable in named_variables(self.trainer.model).values()]

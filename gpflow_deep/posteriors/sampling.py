"""Sampling the inducing outputs of all layers by stochastic-gradient Hamiltonian Monte Carlo (Havasi et al. 2018 [1]).

    sampler = Sampler(model, X, Y)               # a trained DeepGP; X, Y in its units
    sampler.advance(0, sampler.num_steps)        # model.is_sampled from here on: it predicts from the samples
    sampler.trust()                              # effective sample sizes and split R-hat

The chain moves z, where v = q_mu + q_sqrt z are the whitened inducing outputs and q is the Gaussian that training
found: in all directions z varies by 1, or by some more where q is too narrow. With the minibatch estimate g of the
gradient of U(z) = -E[log p(Y | F)] + |v|^2 / 2 it makes the steps of `chain`, which measure the noise of the gradients
during burn-in and take it into account.

What is sampled is exp(-U / T). The posterior, T = 1, is wide in models whose hyperparameters a Gaussian q has chosen,
and lower temperatures often predict better. First held-out rows choose among some, from the highest to the lowest, and
then the variance of Gaussian noise (`noise_search`).

Kernels, inducing inputs and the likelihood may move, too, by steps of Adam on samples of the last `window` steps
(moving-window Monte Carlo EM, Sec. 3.2 of [1]), which easily overfits: what was found is taken only if the log density
of held-out rows gained more than its standard error. After that the chain runs with all rows.

Batches and noise of a step are functions of the seed and its number.

[1] Havasi, Hernandez-Lobato, Murillo-Fuentes, "Inference in Deep Gaussian Processes using SGHMC", NeurIPS 2018.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from gpflow_deep_base.seeds import MAX_SEED, seed_words

from ..layers.chunking import minibatch
from ..layers.protocol import Factors
from ..layers.svgp import LayerFactors
from ..model import likelihoods
from ..model.deep_gp import DeepGP
from ..model.propagation import evaluate, last_outputs, rows_per_slice
from ..model.quadrature import MonteCarlo
from . import chain
from .ensemble import InducingSamples, gps_of
from .noise import has_noise
from .noise_search import NoiseSearch
from .sampling_config import HYPER_EVERY, SamplingConfig

__all__ = ["Sampler", "SamplingConfig"]

#: Steps between looks at the held-out rows, and states of the window that they are scored with.
LOOK_EVERY = 500
LOOK_STATES = 20

#: Steps over which the variance of the gradients is averaged.
VARIANCE_STEPS = 500

#: The most steps of one call of the compiled function.
BLOCK = 50


class Sampler(tf.Module):
    """The chain and all that changes with it: its variables belong into a checkpoint, with those of the model.

    :ivar model: gets `samples`, of which `config.num_kept` are there in the end.

    :param model: a trained deep GP, whose q is where the chain starts and what it moves in units of.
    :param X: all training rows [N, D], in the units of the model.
    :param Y: [N, Q], likewise.
    :param batch_size: rows of a minibatch.
    :param seed: of batches, noise and held-out rows; from 0 to 2**62 - 1.
    :raises ValueError: naming a layer whose distribution is not over inducing outputs; for a model whose objective is
        no bound; if X and Y do not have as many rows, or none of them can be held out.
    """

    def __init__(
        self,
        model: DeepGP,
        X: np.ndarray,
        Y: np.ndarray,
        config: SamplingConfig = SamplingConfig(),
        *,
        batch_size: int = 1000,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if model.is_predictive:
            raise ValueError(
                f"a {type(model).__name__} has no posterior to sample: its objective is the density that is predicted; "
                "use posterior='sghmc' of a DeepGP."
            )
        if len(X) != len(Y):
            raise ValueError(f"X and Y must have as many rows, got {len(X)} and {len(Y)}.")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        if not has_noise(model):
            config = dataclasses.replace(config, noise_tries=0)
        seed_words(seed)  # refuses what is no seed
        self.model = model
        self.config = config
        self._data = (X, Y)
        self._seed = seed
        self._batch_size = batch_size
        self.seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        self._gps = [gps for layer in model.layers if (gps := gps_of(layer)) is not None]
        if not self._gps:
            raise ValueError("a model must have a layer with inducing outputs to sample them, got none.")
        self._parts = self._divided(len(X))
        model.samples = InducingSamples(config.num_kept, model.layers)
        # The chain: its units, its state, and the window of its last states.
        self._mean, self._root = ([_variable(q) for q in parts] for parts in self._q())
        self._chains = [[_variable(part) for part in chain.start(tf.zeros_like(mean))] for mean in self._mean]
        states = max(config.window // HYPER_EVERY, 1) if config.choosing else 0
        self._window = [_variable(tf.zeros([states, *mean.shape], mean.dtype)) for mean in self._mean]
        # Hyperparameters are what is trained, but for q.
        ids_of_q = {id(part.unconstrained_variable) for gps in self._gps for part in (gps.q_mu, gps.q_sqrt)}
        self._hyper = [v for v in model.trainable_variables if id(v) not in ids_of_q] if config.hyper_steps else []
        self.optimizer = tf.keras.optimizers.Adam(config.hyper_rate)
        self.optimizer.build(self._hyper)
        # The best so far of what held-out rows decide.
        self._best = [_variable(v) for v in self._hyper]
        self._scores = _variable(tf.zeros([len(self._parts[1])], tf.float64))
        self._gain, self._best_score = (_variable(tf.constant(value, tf.float64)) for value in (0.0, -np.inf))
        self._temperature = _variable(tf.constant(config.temperature or 1.0, tf.float64))
        likelihood: Any = model.likelihood
        is_tried = config.trying[1] > config.trying[0]
        self._noise = NoiseSearch(likelihood.variance, likelihood.variance_lower_bound) if is_tried else None
        self._roots = [_variable(root) for root in self._factorise()]

    @property
    def num_steps(self) -> int:
        """Of the whole chain."""
        return self.config.sampling[1]

    @property
    def gain(self) -> float:
        """What moved noise and hyperparameters added to the log density of held-out rows, nats per row; 0 where they
        stayed."""
        return float(self._gain) + (0.0 if self._noise is None else self._noise.gain)

    @property
    def temperature(self) -> float:
        """T, the chosen one once it is chosen."""
        return float(self._temperature)

    def advance(self, first: int, count: int) -> tf.Tensor:
        """Make the steps first, ..., first + count - 1. Returns the last potential over N, [], nats per row."""
        start = time.monotonic()
        config = self.config
        potential = tf.constant(0.0, tf.float64)
        t = first
        sample_from, end = config.sampling
        thin = config.sampling_steps // config.num_kept
        if first == 0:
            self._begin()
        while t < (stop := min(first + count, end)):
            # A block of steps in one compiled call, up to where something else is due.
            stop = min(stop, self._next_event(t))
            rows = tf.constant(np.stack([self._batch(step) for step in range(t, stop)]), tf.int32)
            potential = self._steps(rows, tf.constant(t), tf.constant(self._temperature_at(t), tf.float64))
            t = stop
            # Held-out rows choose in the first steps; from the last ones every `thin`-th state is kept.
            if t <= config.choosing:
                self._choose(t, rows[-1])
            if t > sample_from and (t - sample_from) % thin == 0 and not self.model.is_sampled:
                assert self.model.samples is not None  # of mypy
                self.model.samples.keep(self._by_layer())
        if not np.isfinite(potential):
            raise FloatingPointError(f"the chain is at a potential of {float(potential)}; lower step_size.")
        self.seconds.assign_add(time.monotonic() - start)
        return potential

    def trust(self) -> dict[str, chain.Trust]:
        """How far the kept samples can be trusted: "layer 1 of 2" and so on, of the inducing outputs of a layer; and
        "functions", of the values of the model's function at up to 100 training rows, with inner layers at their means.

        :raises ValueError: before `config.num_kept` samples, or with fewer than 4.
        """
        model = self.model
        samples = model.samples
        if samples is None or not samples.is_complete:
            raise ValueError(f"the chain must have made all of its {self.num_steps} steps; call advance.")
        # The inducing outputs of each layer.
        trusts = {}
        for layer, values in zip(model.layers, samples.values, strict=True):
            if gps_of(layer) is not None:
                trusts[layer.label] = chain.trust(tf.convert_to_tensor(values))
        # The model's function, at some training rows and with inner layers at their means.
        X = tf.constant(self._data[0][:100])
        ensemble = samples.cache(model.layers)
        zeros = [tf.zeros([samples.size, 1, layer.num_latent_gps], X.dtype) for layer in model.layers[:-1]]
        means, _ = evaluate(last_outputs, model.layers, ensemble, X, zeros, size=1)
        return {**trusts, "functions": chain.trust(means)}

    # Private.

    def _q(self) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Whitened means and factors of the layers' q."""
        means, roots = zip(*(gps.factors()[1:] for gps in self._gps), strict=True)
        return list(means), list(roots)

    def _begin(self) -> None:
        """Start from the model as it is."""
        for variables, values in zip((self._mean, self._root), self._q(), strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        # At rest at z = 0, the mean of q.
        for variables in self._chains:
            for variable in variables:
                variable.assign(tf.zeros_like(variable))
        self._keep_best()
        assert self.model.samples is not None  # of mypy
        self.model.samples.count.assign(0)
        self._gain.assign(0.0)
        self._best_score.assign(-np.inf)
        self._set_roots(self._factorise())

    def _values(self, z: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """v = q_mu + q_sqrt z, [M, L] of each layer with inducing outputs."""
        values = []
        for mean, root, part in zip(self._mean, self._root, z, strict=True):
            moved = root * part if root.shape.rank == 2 else tf.einsum("lmk,kl->ml", root, part)
            values.append(mean + moved)
        return values

    def _now(self) -> list[tf.Tensor]:
        """The same of the current state."""
        return self._values([variables[0] for variables in self._chains])

    def _by_layer(self) -> list[tf.Tensor]:
        """The same of the current state for each layer of the model, [0, 0] of those without."""
        values = iter(self._now())
        return [tf.zeros([0, 0]) if gps_of(layer) is None else next(values) for layer in self.model.layers]

    def _factors(self, roots: Sequence[tf.Tensor], values: Sequence[tf.Tensor]) -> Factors:
        """Of all layers, with these values of the inducing outputs where there are any."""
        sampled_factors = iter([LayerFactors(Luu, v, None) for Luu, v in zip(roots, values, strict=True)])
        return [layer.factors() if gps_of(layer) is None else next(sampled_factors) for layer in self.model.layers]

    def _potential(
        self, roots: Sequence[tf.Tensor], values: Sequence[tf.Tensor], X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor
    ) -> tf.Tensor:
        """U, [], nats, from a minibatch."""
        prior = tf.add_n([0.5 * tf.reduce_sum(tf.square(v)) for v in values])
        return prior - self.model.expected_log_likelihood((X, Y), self._factors(roots, values), seed=seed)

    def _temperature_at(self, t: int) -> float:
        """T of a step: of the ladder, or the chosen one."""
        rung = t // self.config.burn_in if self.config.ladder else 0
        return self.config.ladder[rung] if rung < len(self.config.ladder) else self.temperature

    def _next_event(self, t: int) -> int:
        """The first step after t before which something else than moving the chain has to be done."""
        config = self.config
        sample_from, end = config.sampling
        if t < config.choosing:
            return min(t - t % HYPER_EVERY + HYPER_EVERY, *(e for e in self._ends() if e > t))
        if t < sample_from:
            return min(t - t % BLOCK + BLOCK, sample_from)
        # A sample to keep.
        thin = config.sampling_steps // config.num_kept
        return min(t + thin - (t - sample_from) % thin, t + BLOCK, end)

    def _ends(self) -> list[int]:
        """Where a temperature or a noise was tried, the chain has settled before hyperparameters move, and where that
        ends."""
        phases = range(self.config.burn_in, self.config.trying[1] + 1, max(self.config.burn_in, 1))
        return [*phases, *(self.config.adapting if self.config.hyper_steps else ()), self.config.choosing]

    def _choose(self, t: int, rows: tf.Tensor) -> None:
        """What is due after t steps until temperature and hyperparameters are chosen."""
        config = self.config
        adapt_from, adapt_to = config.adapting
        # Every few steps the state goes into the window, and hyperparameters move.
        if t % HYPER_EVERY == 0:
            self._record(t)
            if config.hyper_steps and t > adapt_from:
                self._move(t, rows)
        # The temperature: the best so far, after the burn-in of each.
        if t <= len(config.ladder) * config.burn_in and t % config.burn_in == 0:
            scores = self._held_out_scores(t)
            if scores.mean() > float(self._best_score):
                self._best_score.assign(scores.mean())
                self._scores.assign(scores)
                self._temperature.assign(config.ladder[t // config.burn_in - 1])
        # The noise, at the chosen temperature.
        if self._noise is not None and config.trying[0] <= t <= config.trying[1] and t % config.burn_in == 0:
            self._try_noise(t, self._noise)
        # Hyperparameters: held-out rows are scored before they move and now and then, and the best ones stay.
        if config.hyper_steps and t >= adapt_from:
            if t == adapt_from:
                self._scores.assign(self._held_out_scores(t))
                self._keep_best()
            elif (t - adapt_from) % LOOK_EVERY == 0 or t == adapt_to:
                self._look(t)
            if t == adapt_to:
                self._assign_best()

    @functools.cached_property
    def _steps(self) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]:
        """Move the chain by steps of the minibatches `rows` [T, B] from step `first` on; U / N before the last one."""
        X, Y = (tf.constant(part) for part in self._data)
        signature = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.float64)]

        @tf.function(input_signature=signature, autograph=False)
        def steps(rows: tf.Tensor, first: tf.Tensor, temperature: tf.Tensor) -> tf.Tensor:
            roots = [tf.convert_to_tensor(root) for root in self._roots]

            def body(i: tf.Tensor, last: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                batch = tf.gather(X, rows[i]), tf.gather(Y, rows[i])
                return i + 1, self._step(roots, *batch, first + i, temperature)

            count = tf.shape(rows)[0]
            zero = tf.zeros([], X.dtype)
            _, potential = tf.while_loop(lambda i, last: i < count, body, (0, zero), parallel_iterations=1)
            return potential / tf.cast(len(X), X.dtype)

        return steps

    def _step(
        self, roots: Sequence[tf.Tensor], X: tf.Tensor, Y: tf.Tensor, t: tf.Tensor, temperature: tf.Tensor
    ) -> tf.Tensor:
        """Move the chain by one step; U before it."""
        seed = tf.random.fold_in(_stream(self._seed, 3), t)
        # U and its gradient g at z, from the minibatch.
        z = [tf.convert_to_tensor(variables[0]) for variables in self._chains]
        with tf.GradientTape() as tape:
            tape.watch(z)
            potential = self._potential(roots, self._values(z), X, Y, seed)
        # V is an average over the last steps; while samples are kept it stays.
        weight = 1.0 / tf.cast(tf.minimum(t + 1, VARIANCE_STEPS), X.dtype)
        weight = tf.where(t < self.config.sampling[0], weight, 0.0)
        # Each layer's chain, with noise of its own.
        for i, (variables, gradient) in enumerate(zip(self._chains, tape.gradient(potential, z), strict=True)):
            eps = tf.random.stateless_normal(tf.shape(gradient), tf.random.fold_in(seed, i + 1), dtype=gradient.dtype)
            state = chain.ChainState(*map(tf.convert_to_tensor, variables))
            state = chain.move(
                state,
                gradient,
                eps,
                step_size=self.config.step_size,
                friction=self.config.friction,
                weight=weight,
                temperature=temperature,
            )
            for variable, value in zip(variables, state, strict=True):
                variable.assign(value)
        return potential

    def _set_roots(self, roots: Sequence[tf.Tensor]) -> None:
        for variable, root in zip(self._roots, roots, strict=True):
            variable.assign(root)

    def _factorise(self) -> list[tf.Tensor]:
        """Cholesky factors of Kuu of the layers with inducing outputs."""
        return [gps.factors().Luu for gps in self._gps]

    @functools.cached_property
    def _hyper_step(self) -> Callable[[list[tf.Tensor], tf.Tensor, tf.Tensor], list[tf.Tensor]]:
        """A step of Adam for inducing outputs `values` and a minibatch; factors of Kuu after it."""

        @tf.function(autograph=False, reduce_retracing=True)
        def step(values: list[tf.Tensor], rows: tf.Tensor, seed: tf.Tensor) -> list[tf.Tensor]:
            X, Y = (tf.gather(part, rows) for part in self._data)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(self._hyper)
                loss = self._potential(self._factorise(), values, X, Y, seed) - self.model.log_prior_density()
            self.optimizer.apply_gradients(zip(tape.gradient(loss, self._hyper), self._hyper, strict=True))
            return self._factorise()

        return step

    def _density(self, values: Sequence[tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
        """Log densities of the held-out rows given inducing outputs and a draw of the inner layers, [n]."""
        model = self.model
        X, Y = (tf.constant(part[self._parts[1]]) for part in self._data)
        noise = MonteCarlo().noise([layer.num_latent_gps for layer in model.layers[:-1]], 1, len(X), seed, X.dtype)
        factors = self._factors(self._roots, values)
        f = evaluate(last_outputs, model.layers, factors, X, noise, size=rows_per_slice(model.layers))
        return likelihoods.predict_log_density(model.likelihood, X, f[0], f[1], Y, seed)[0]

    def _record(self, t: int) -> None:
        """Put the state after t steps into the window."""
        states = int(self._window[0].shape[0])
        for window, value in zip(self._window, self._now(), strict=True):
            window.scatter_nd_update([[t // HYPER_EVERY % states]], value[None])

    def _move(self, t: int, rows: tf.Tensor) -> None:
        """Move the hyperparameters for one of the states of the window."""
        states = int(self._window[0].shape[0])
        number = t // HYPER_EVERY
        chosen = int(np.random.default_rng([self._seed, 4, t]).integers(min(number, states)))
        values = [window[(number - chosen) % states] for window in self._window]
        seed = tf.random.fold_in(_stream(self._seed, 7), t)
        self._set_roots(self._hyper_step(values, rows, seed))

    def _held_out_scores(self, t: int) -> NDArray[np.float64]:
        """Log densities of the held-out rows by states of the window, [n], nats."""
        states = int(self._window[0].shape[0])
        # States evenly from the window, and the log of the mean of their densities.
        last = t // HYPER_EVERY
        recent = [(last - i * states // LOOK_STATES) % states for i in range(min(LOOK_STATES, states))]
        seeds = [_stream((self._seed + i) % (MAX_SEED + 1), 5) for i in range(len(recent))]
        terms = [self._density([w[i] for w in self._window], seed) for i, seed in zip(recent, seeds, strict=True)]
        return np.asarray(tf.reduce_logsumexp(tf.stack(terms), axis=0) - np.log(len(terms)), np.float64)

    def _look(self, t: int) -> None:
        """Keep the hyperparameters if held-out rows say that they are the best so far."""
        gains = self._held_out_scores(t) - self._scores.numpy()
        if gains.mean() > max(self.gain, gains.std() / np.sqrt(len(gains))):
            self._gain.assign(gains.mean())
            self._keep_best()

    def _keep_best(self) -> None:
        for best, variable in zip(self._best, self._hyper, strict=True):
            best.assign(variable)

    def _try_noise(self, t: int, search: NoiseSearch) -> None:
        """Judge the noise of the last steps, and try the next one."""
        begin, end = self.config.trying
        if t == begin:
            search.begin()
            return
        scores = self._held_out_scores(t)
        if search.judge(scores - self._scores.numpy(), is_last=t == end):
            self._scores.assign(scores)

    def _assign_best(self) -> None:
        for best, variable in zip(self._best, self._hyper, strict=True):
            variable.assign(best)
        self._set_roots(self._factorise())

    def _divided(self, num_rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row numbers to move hyperparameters by, and held-out ones."""
        order = np.random.default_rng([self._seed, 6]).permutation(num_rows)
        count = int(np.ceil(self.config.held_out * num_rows)) if self.config.choosing else 0
        if count >= num_rows:
            raise ValueError(f"held_out={self.config.held_out} leaves none of {num_rows} rows; lower it.")
        return np.sort(order[count:]), np.sort(order[:count])

    def _batch(self, t: int) -> NDArray[np.int64]:
        """Row numbers of the minibatch of a step: without held-out rows as long as hyperparameters may move."""
        rows = self._parts[0] if t < self.config.choosing else np.arange(len(self._data[0]))
        return rows[minibatch(self._seed, t, len(rows), self._batch_size)]


def _variable(value: object) -> tf.Variable:
    return tf.Variable(value, trainable=False)


def _stream(seed: int, number: int) -> tf.Tensor:
    """Seed of one kind of draws, int32 [2]: another one for each integer from 0 to 2**62 - 1."""
    high, low = seed_words(seed)
    stream = tf.constant([low, number], tf.int32)
    return tf.random.fold_in(stream, high) if high else stream

#!/usr/bin/env python3
"""How long does a training step of a DARN with locally connected layers take on frames of Atari's size, and where?

    darn_local.py --repetitions=8 --threads=1 --output=local.json
    darn_local.py --stack --noparts

The network of Section 5.3 of Gregor et al. (2014) for Freeway: 159 x 209 pixels, two locally connected layers of 32
filters (kernels 8 and 4, strides 4 and 2, period 8), 300 stochastic units, pixels that see a window of 15 x 15 with
period 14, and minibatches of 20. The frames are drawn, zeros and ones in lanes: the time does not depend on them. With
--stack it is the stack of Figure 5, stochastic layers that are grids (kernels 7 and 21, strides 7 and 3, 8 and 4
filters) below 100 units. Beside whole steps of the first network: the encoder's and the decoder's part and the pixels'
window, forward and with their gradients. "CPU" is the processor time of the best call. The objective of each step from
the start shows that the numbers stay.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import bench
import numpy as np
import tensorflow as tf
from absl import flags

from darn import DARN, DARNConfig, LocalConfig
from darn.train.training import Trainer, TrainingConfig

IMAGE = (159, 209)


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_integer("batch_size", 20, "Rows of a minibatch.", 1, flag_values=fv)
    flags.DEFINE_integer("steps", 2, "Training steps of a timed call.", 1, flag_values=fv)
    flags.DEFINE_integer("repetitions", 8, "Timed calls of each function, after one other.", 1, flag_values=fv)
    flags.DEFINE_boolean("stack", False, "The stack of Figure 5, of stochastic layers.", flag_values=fv)
    flags.DEFINE_boolean("parts", True, "Time the parts of a step as well.", flag_values=fv)
    bench.define_common(fv, threads=1)


def frames(rows: int, seed: int = 0) -> np.ndarray:
    """Zeros and ones [rows, H W]: dashed lines between lanes, and blobs that are somewhere on them."""
    rng = np.random.default_rng(seed)
    x = np.zeros([rows, *IMAGE], np.float32)
    x[:, 10::14, ::8] = 1.0
    for image in x:
        for lane in range(12, IMAGE[0] - 8, 14):
            left = rng.integers(IMAGE[1] - 12)
            image[lane : lane + 6, left : left + 12] = rng.random([6, 12]) < 0.6
    return x.reshape(rows, -1)


def model_of(x: np.ndarray, *, is_stack: bool = False) -> DARN:
    """The network of the paper, or the stack of its Figure 5."""
    local = LocalConfig(IMAGE)
    hidden: tuple[int, ...] = (300,)
    if is_stack:
        local = LocalConfig(IMAGE, (7, 21), (7, 3), (8, 4), stochastic=True)
        hidden = (*local.hidden, 100)
    config = DARNConfig(x.shape[1], hidden, visible_conditional="local", local=local)
    return DARN(config, seed=0, data=x)


def whole_steps(model: DARN, x: np.ndarray, batch_size: int, steps: int, losses: list[float]) -> Callable[[], Any]:
    """The steps of one timed call, which notes their objectives."""
    trainer = Trainer(model, TrainingConfig(), num_data=len(x))
    data, rng = tf.constant(x), np.random.default_rng(1)

    def call() -> None:
        rows = rng.integers(len(x), size=[steps, batch_size])
        losses.extend(float(value) for value in trainer.advance(data, rows, 3).objective)

    return call


def parts(x: np.ndarray, batch_size: int) -> dict[str, Callable[[], Any]]:
    """The networks and the window, forward and with the gradients of their parameters and inputs."""
    model = model_of(x)
    pixels, bits = tf.constant(x[:batch_size]), tf.ones([batch_size, 300])
    encoder, decoder, window = model.encoders[0].network, model.decoders[0].network, model.decoders[0].conditional
    found: dict[str, Callable[[], Any]] = {}
    for name, function, owner, given, inputs in (
        ("encoder", encoder, encoder, pixels, []),
        ("decoder", decoder, decoder, bits, [bits]),
        ("window", window.logits, window, pixels, []),
    ):
        both = functools.partial(slopes, function, [*owner.trainable_variables, *inputs])
        found[f"{name}, forward"] = functools.partial(tf.function(function, autograph=False), given)
        found[f"{name}, with gradients"] = functools.partial(tf.function(both, autograph=False), given)
    return found


def slopes(function: Callable[[tf.Tensor], tf.Tensor], wanted: Sequence[Any], x: tf.Tensor) -> list[tf.Tensor]:
    """Gradients of the sum of the squares of the function's results."""
    with tf.GradientTape() as tape:
        tape.watch([part for part in wanted if not isinstance(part, tf.Variable)])
        y = tf.reduce_sum(tf.square(function(x)))
    return [gradient for gradient in tape.gradient(y, wanted) if gradient is not None]


def main(FLAGS: flags.FlagValues) -> None:
    x = frames(4 * FLAGS.batch_size)
    losses: list[float] = []
    model = model_of(x, is_stack=FLAGS.stack)
    calls = {"step": (whole_steps(model, x, FLAGS.batch_size, FLAGS.steps, losses), FLAGS.steps)}
    if FLAGS.parts and not FLAGS.stack:
        calls |= {name: (function, 1) for name, function in parts(x, FLAGS.batch_size).items()}
    results = []
    for name, (function, count) in calls.items():
        times = 1e3 * bench.times_of(function, FLAGS.repetitions).cpu / count
        results.append({"what": name, "cpu_min_ms": float(times.min()), "cpu_median_ms": float(np.median(times))})
        print(f"{name:>24}  CPU {times.min():7.1f} ms, median {np.median(times):7.1f}", flush=True)
    print("objectives of the first steps, nats:", *(f"{value:.2f}" for value in losses[:8]))
    bench.keep({"metrics": results, "losses": losses}, "none: drawn with seed 0")


if __name__ == "__main__":
    bench.run(define_flags, main)

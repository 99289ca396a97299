"""Several devices and several machines, by `tf.distribute`: every replica works on its rows of the same batch.

    strategy = make_strategy("mirrored")                # before any tensor is made; None for "none"
    with scope(strategy):
        model = build()                                 # variables are copied to every replica
        optimizer = tf.keras.optimizers.Adam(0.01)
    step = make_train_step(strategy, loss, optimizer, model.trainable_variables)
    scalars = step(split_batch(strategy, rows_of_this_worker), seed)

The sum over the replicas is that of one device on all rows, up to rounding, if `loss` takes its noise from
:func:`replica_noise`. A worker is a process on one machine with one or more replicas (GPUs); for "multi_worker" the
environment variable TF_CONFIG names them all, and the first is the chief, the one that writes.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import tensorflow as tf

from gpflow_deep_base.files import FULL

__all__ = [
    "Devices",
    "Worker",
    "apply_threads",
    "check_same_step",
    "explain",
    "lost_worker",
    "make_strategy",
    "make_train_step",
    "own_words",
    "prepare_gpus",
    "replica_noise",
    "scope",
    "shared",
    "split_batch",
    "values_of_chief",
    "worker_of",
]

Batch = TypeVar("Batch")
MOST_THREADS = 4096
STRATEGIES = ("none", "mirrored", "multi_worker")

_WORKER_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    tf.errors.CancelledError,
)


@dataclass(frozen=True)
class Worker:
    """One process among those that train together.

    :param index: its number, from 0; 0 is the chief, which writes checkpoints, scalars and results.
    :param count: how many there are.
    :param num_replicas: devices of this worker.
    """

    index: int = 0
    count: int = 1
    num_replicas: int = 1

    @property
    def is_chief(self) -> bool:
        """Whether this is the process that writes."""
        return self.index == 0

    def batch_size(self, total: int) -> int:
        """Rows of this worker in a batch of `total` rows.

        :raises ValueError: if the replicas of all workers cannot have equally many rows.
        """
        replicas = self.count * self.num_replicas
        if total % replicas:
            raise ValueError(f"--batch_size must be a multiple of the {replicas} replicas, got {total}; change it.")
        return total // self.count


@dataclass(frozen=True)
class Devices:
    """On what a run computes.

    :param threads: CPU threads; 0 lets TensorFlow choose.
    :param strategy: several devices or machines, see docs/scaling.md.
    :param replicas: devices of --strategy=mirrored; all GPUs if not given.
    """

    threads: int = 0
    strategy: Literal["none", "mirrored", "multi_worker"] = "none"
    replicas: int | None = None

    def __post_init__(self) -> None:
        if self.threads < 0:
            raise ValueError(f"--threads must not be negative, got {self.threads}; 0 lets TensorFlow choose.")
        # TensorFlow makes all of them at its start, which would take minutes.
        if self.threads > MOST_THREADS:
            raise ValueError(f"--threads must be at most {MOST_THREADS}, got {self.threads}; give one for each CPU.")
        check_replicas(self.strategy, self.replicas)

    def prepare(self) -> "tf.distribute.Strategy | None":
        """Set threads and GPUs and make the strategy. Call it before any tensor is made."""
        apply_threads(self.threads)
        prepare_gpus()
        return make_strategy(self.strategy, num_replicas=self.replicas)


def check_replicas(name: str, num_replicas: int | None) -> None:
    """:raises ValueError: for a number of devices that a strategy of this name cannot have."""
    if num_replicas is not None and (name != "mirrored" or num_replicas < 1):
        raise ValueError(f"--replicas must be at least 1 and needs --strategy=mirrored, got {num_replicas} and {name}.")


def make_strategy(name: str, *, num_replicas: int | None = None) -> tf.distribute.Strategy | None:
    """The strategy of a run. Call it before any tensor is made.

    :param name: "none"; "mirrored", all GPUs of this machine; or "multi_worker", the processes named in TF_CONFIG with
        all their GPUs.
    :param num_replicas: for "mirrored": the first so many GPUs or, on a machine without any, so many logical devices
        of the CPU (2 if None), which only shows that the program works.
    :raises ValueError: if the name is unknown, there are fewer GPUs, TF_CONFIG does not fit, or it is too late.
    """
    if name not in STRATEGIES:
        raise ValueError(f"--strategy must be one of {', '.join(STRATEGIES)}, got {name!r}.")
    check_replicas(name, num_replicas)
    if name == "none":
        return None
    # Several machines: TF_CONFIG says which.
    if name == "multi_worker":
        _check_tf_config()
        try:
            return tf.distribute.MultiWorkerMirroredStrategy()
        except (RuntimeError, ValueError, tf.errors.OpError) as error:
            raise ValueError(f"--strategy=multi_worker could not start ({error}); check TF_CONFIG.") from error

    # One machine: its GPUs, or parts of its CPU in their place.
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        num_replicas = len(gpus) if num_replicas is None else num_replicas
        # Fewer than all are the first of them.
        if num_replicas > len(gpus):
            raise ValueError(f"--replicas={num_replicas} is more than the {len(gpus)} GPUs of this machine; lower it.")
        return tf.distribute.MirroredStrategy([f"GPU:{i}" for i in range(num_replicas)])
    num_replicas = 2 if num_replicas is None else num_replicas
    logical = [tf.config.LogicalDeviceConfiguration()] * num_replicas
    try:
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], logical)
    except RuntimeError as error:
        raise ValueError("--strategy=mirrored came too late; call make_strategy before any tensor is made.") from error
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])


def worker_of(strategy: tf.distribute.Strategy | None) -> Worker:
    """Which of the processes this is."""
    if strategy is None:
        return Worker()
    # On one machine there is no cluster, and this worker has all replicas.
    resolver = strategy.cluster_resolver
    if resolver is None or not resolver.cluster_spec().as_dict():
        return Worker(num_replicas=strategy.num_replicas_in_sync)
    # The chief comes first, then workers by their numbers.
    tasks = [(job, i) for job in ("chief", "worker") for i in range(_num_tasks(resolver.cluster_spec(), job))]
    index = tasks.index((resolver.task_type, resolver.task_id))
    return Worker(index, len(tasks), strategy.num_replicas_in_sync // len(tasks))


def scope(strategy: tf.distribute.Strategy | None) -> AbstractContextManager[object]:
    """Where to build models and optimizers; nothing special without a strategy."""
    return nullcontext() if strategy is None else strategy.scope()


def split_batch(
    strategy: tf.distribute.Strategy, batch: Sequence[tf.Tensor]
) -> tuple[tf.distribute.DistributedValues, ...]:
    """Rows of this worker, cut into equal parts for its replicas: arguments for `strategy.run`.

    :param batch: tensors with the rows on the first axis.
    :raises ValueError: if the rows cannot be cut into equal parts.
    """
    worker = worker_of(strategy)
    rows = batch[0].shape[0]
    num_replicas = worker.num_replicas
    if rows % num_replicas:
        raise ValueError(f"a batch must be a multiple of the {num_replicas} replicas, got {rows} rows.")
    size = rows // num_replicas

    def part(value: tf.Tensor) -> tf.distribute.DistributedValues:
        def of_replica(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
            # Replicas are numbered across workers; each takes its part of this worker's rows.
            start = (context.replica_id_in_sync_group - worker.index * num_replicas) * size
            return value[start : start + size]

        return strategy.experimental_distribute_values_from_function(of_replica)

    return tuple(part(value) for value in batch)


def shared(
    strategy: tf.distribute.Strategy | None, batch_at: Callable[[int], Sequence[tf.Tensor]]
) -> Callable[[int], Sequence[tf.Tensor | tf.distribute.DistributedValues]]:
    """This worker's batches by step, cut for its replicas; themselves without a strategy."""
    return batch_at if strategy is None else lambda step: split_batch(strategy, batch_at(step))


def replica_noise(draw: Callable[[tf.Tensor], tf.Tensor], num_rows: tf.Tensor | int) -> tf.Tensor:
    """This replica's rows of the noise for the whole batch; within `strategy.run`, or on one device.

    :param draw: number of rows of the whole batch -> noise [rows, ...], a pure function of a seed.
    :param num_rows: rows of this replica.
    """
    # The noise of the whole batch is drawn everywhere, so that it is that of one device.
    context = tf.distribute.get_replica_context()
    start = num_rows * tf.cast(context.replica_id_in_sync_group, tf.int32)
    return draw(num_rows * context.num_replicas_in_sync)[start : start + num_rows]


def make_train_step(
    strategy: tf.distribute.Strategy | None,
    loss: Callable[[Batch, tf.Tensor], tuple[tf.Tensor, dict[str, tf.Tensor]]],
    optimizer: "tf.keras.Optimizer",
    variables: Sequence["tf.Variable | tf.keras.Variable"],
) -> Callable[[Batch, tf.Tensor], dict[str, tf.Tensor]]:
    """A compiled function `(batch, seed) -> scalars` that updates the variables once, on one device or several.

    :param strategy: None for one device; else the batch is what :func:`split_batch` returns.
    :param loss: `(rows, seed)` -> the loss and scalars to log, all of them means over the rows (plus terms that do not
        depend on rows, such as KL divergences of the weights).
    :param optimizer: a Keras optimizer, made in the strategy's scope.
    :param variables: what to train, made in the strategy's scope.
    :return: the step; its scalars are means over all rows.
    """
    count = 1 if strategy is None else strategy.num_replicas_in_sync
    # The moments of the optimizer are variables, which are made outside of the compiled step.
    with scope(strategy):
        if not optimizer.built:
            optimizer.build(variables)

    # Every replica computes the gradient of its share of the mean, and the optimizer adds these up.
    def on_replica(batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            value, scalars = loss(batch, seed)
            value = value / count
        gradients = tape.gradient(value, [getattr(v, "value", v) if _is_keras(v) else v for v in variables])
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return scalars

    def step(batch: Batch, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        if strategy is None:
            return on_replica(batch, seed)
        parts = strategy.run(on_replica, args=(batch, seed))
        return {name: strategy.reduce("MEAN", value, axis=None) for name, value in parts.items()}

    return tf.function(step, autograph=False)


def check_same_step(strategy: tf.distribute.Strategy | None, step: int) -> None:
    """Compare the restored steps of all workers; every worker has to call it.

    :raises ValueError: if they differ: the workers do not see the same checkpoints.
    """
    if strategy is None or worker_of(strategy).count == 1:
        return
    steps = _of_all_replicas(strategy, tf.constant(step, tf.int64))
    if steps.min() != steps.max():
        raise ValueError(
            f"all workers must continue from one checkpoint, but they found steps {steps.min()} to {steps.max()}; "
            "--run_dir has to be a folder that all of them share."
        )


def values_of_chief(strategy: tf.distribute.Strategy | None, values: Mapping[str, float]) -> Mapping[str, float]:
    """The chief's values, so that all workers decide alike; every worker has to call it, with the same names."""
    if strategy is None or worker_of(strategy).count == 1:
        return values
    chief_values = _of_all_replicas(strategy, tf.constant([float(value) for value in values.values()], tf.float64))[0]
    return dict(zip(values, chief_values.tolist(), strict=True))


def own_words(message: str) -> str:
    """What an error of TensorFlow says without the account of where the graph was built: its last line, or ""."""
    lines = [line for line in message.split("[[{{node")[0].splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def lost_worker(error: Exception) -> str | None:
    """What to tell the user if `error` is what a step raises after another worker has stopped; else None."""
    if not isinstance(error, _WORKER_LOST):
        return None
    reason = own_words(error.message) or type(error).__name__
    return f"another worker has stopped ({reason}). Start all of them with --resume."


def explain(error: Exception) -> tuple[str, int] | None:
    """What `cli.run` says about the errors of a step: a lost worker, no memory or disk space left, bits that change."""
    # The disk is full, of which only the words of the operating system tell.
    lines = error.message.splitlines() if isinstance(error, tf.errors.OpError) else []
    if full := [line.strip() for line in lines if any(os.strerror(code) in line for code in FULL)]:
        return f"{full[0]}; free some space, then continue with --resume.", 2
    # No memory is left, on a GPU or on the host.
    if isinstance(error, tf.errors.ResourceExhaustedError | MemoryError):
        words = own_words(error.message) if isinstance(error, tf.errors.OpError) else str(error)
        return f"out of memory; lower --batch_size or make the model smaller. {words}", 1
    # An operation that has no deterministic kernel, as `prepare_gpus` asks for.
    if isinstance(error, tf.errors.UnimplementedError) and "deterministic" in error.message.lower():
        what = f"a GPU cannot compute the same bits each time for this model ({own_words(error.message)})"
        return f"{what}; set TF_DETERMINISTIC_OPS=0 in the environment: resuming then changes the last bits.", 1
    message = lost_worker(error)
    return None if message is None else (message, 1)


def _of_all_replicas(strategy: tf.distribute.Strategy, value: tf.Tensor) -> np.ndarray:
    """The value that each replica of all workers has, in their order: [replicas, ...]."""

    def gather() -> tf.Tensor:
        return tf.distribute.get_replica_context().all_gather(value[None], axis=0)

    # Every replica gets the same array of all, so that the first of them tells it.
    gathered = strategy.experimental_local_results(strategy.run(tf.function(gather)))[0]
    return np.asarray(gathered)


def _is_keras(variable: object) -> bool:
    return isinstance(variable, tf.keras.Variable)


def _num_tasks(spec: tf.train.ClusterSpec, job: str) -> int:
    return int(spec.num_tasks(job)) if job in spec.jobs else 0


def _check_tf_config() -> None:
    text = os.environ.get("TF_CONFIG", "")
    example = '{"cluster": {"worker": ["host0:12345", "host1:12345"]}, "task": {"type": "worker", "index": 0}}'
    try:
        config = json.loads(text)
        cluster = config["cluster"]
        task = config["task"]
        # TensorFlow's own class refuses lists that are none, and a task that is not in them.
        tf.train.ClusterSpec(cluster).task_address(task["type"], int(task["index"]))
        if not set(cluster) <= {"chief", "worker"}:
            raise ValueError(f"unknown kinds of tasks {sorted(set(cluster) - {'chief', 'worker'})}")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"--strategy=multi_worker needs the environment variable TF_CONFIG, such as {example}; got {text!r} "
            f"({type(error).__name__}: {error})."
        ) from error


def prepare_gpus() -> None:
    """Let a run take a GPU's memory as it needs it, and compute the same bits each time; without GPUs nothing happens.

    TensorFlow's own choice is all memory of all GPUs, which leaves none to a second run, and sums whose terms come in
    any order, such as gradients of convolutions, after which a resumed run has other bits. TF_DETERMINISTIC_OPS=0 in
    the environment allows such sums.
    """
    gpus = tf.config.list_physical_devices("GPU")
    # Memory as it is needed, which can be asked for only before the first tensor.
    for gpu in gpus:
        try:
            tf.config.experimental.set_memory_growth(gpu, True)
        except RuntimeError as error:
            raise ValueError("prepare_gpus came too late; call it before any tensor is made.") from error
    # The same bits each time, at the cost of some speed.
    if gpus and os.environ.get("TF_DETERMINISTIC_OPS", "1").lower() not in ("0", "false"):
        tf.config.experimental.enable_op_determinism()


def apply_threads(threads: int) -> None:
    """Let TensorFlow use `threads` CPU threads within an operation and between operations; 0 changes nothing.

    :raises ValueError: if TensorFlow has started already with another number.
    """
    if threads == 0:
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    except RuntimeError as error:
        raise ValueError(f"--threads={threads} came too late; call apply_threads before any tensor is made.") from error

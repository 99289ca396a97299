"""gpflow_deep_runs.run.devices: two replicas do what one device does with all rows; workers, errors, threads.

Devices have to be set before TensorFlow starts, so the comparisons run in a process with two logical CPU devices.
"""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep_runs.run.devices import (
    Devices,
    Worker,
    apply_threads,
    check_same_step,
    explain,
    lost_worker,
    make_strategy,
    make_train_step,
    own_words,
    prepare_gpus,
    replica_noise,
    scope,
    shared,
    values_of_chief,
    worker_of,
)
from tests.gpflow_deep_runs.run.toy import two_workers
from tests.scripts.running import results_of

_PROGRAM = """
import json, os, sys
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import numpy as np
import tensorflow as tf
from gpflow_deep_runs.run import Devices, checkpoints, devices

folder = __FOLDER__
strategy = Devices(threads=1, strategy="mirrored").prepare()
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(48, 3)), rng.normal(size=(48, 1))
seed = tf.constant([3, 5])
results = {"threads": [tf.config.threading.get_intra_op_parallelism_threads(),
                       tf.config.threading.get_inter_op_parallelism_threads()]}


def copies_agree(variables):
    mirrored = [v.value if isinstance(v, tf.keras.Variable) else v for v in variables]
    return all(np.array_equal(*[np.asarray(copy) for copy in v.values]) for v in mirrored)


def batches(where):
    return devices.shared(where, lambda t: (tf.constant(X[16 * t : 16 * t + 16]), tf.constant(Y[16 * t : 16 * t + 16])))


# Least squares with noise in each row, a ridge on the weights, and plain gradient steps: see `by_hand` in the test.
for name, where in {"one": None, "two": strategy}.items():
    with devices.scope(where):
        w = tf.Variable(tf.ones([3, 1], tf.float64))
        optimizer = tf.keras.optimizers.SGD(0.125)  # a float32 within Keras: take an exact one

    def loss(batch, seed, w=w):
        X, Y = batch
        noise = devices.replica_noise(lambda n: tf.random.stateless_normal([n, 1], seed, dtype=X.dtype), X.shape[0])
        error = tf.reduce_mean(tf.square(X @ w + noise - Y))
        return error + 0.1 * tf.reduce_sum(tf.square(w)), {"error": error, "size": tf.reduce_sum(tf.square(w))}

    step, batch_at, scalars = devices.make_train_step(where, loss, optimizer, [w]), batches(where), []
    for t in range(3):
        found = step(batch_at(t), tf.random.fold_in(seed, t))
        scalars.append({key: float(value) for key, value in found.items()})
    results[name] = {"w": w.numpy()[:, 0].tolist(), "scalars": scalars, "traced": step.experimental_get_tracing_count(),
                     "copies_agree": where is None or copies_agree([w])}


# A Keras network with weight noise and binary units, as the papers have, by Adam.
nets, optimizers, losses = [], [], []
for where in (None, strategy):
    with devices.scope(where):
        tf.keras.utils.set_random_seed(1)
        net = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(4, dtype="float64"),
                                   tf.keras.layers.Dense(1, dtype="float64")])
        optimizer = tf.keras.optimizers.Adam(0.01)

    def loss(batch, seed, net=net):
        X, Y = batch
        rows = X.shape[0]
        noise = devices.replica_noise(lambda n: tf.random.stateless_normal([n, 4], seed, dtype=X.dtype), rows)
        u = devices.replica_noise(lambda n: tf.random.stateless_uniform([n, 4], seed, dtype=X.dtype), rows)
        logits = net.layers[0](X) + 0.1 * noise
        h = tf.cast(u < tf.sigmoid(logits), X.dtype)
        error = tf.square(net.layers[1](h) - Y)
        log_q = -tf.nn.sigmoid_cross_entropy_with_logits(h, logits)
        estimate = error + tf.stop_gradient(error) * tf.reduce_sum(log_q, axis=1, keepdims=True)
        penalty = sum(tf.reduce_sum(tf.square(w)) for w in net.trainable_variables)
        return tf.reduce_mean(estimate) + 0.01 * penalty, {"error": tf.reduce_mean(error)}

    nets.append(net)
    optimizers.append(optimizer)
    step, batch_at = devices.make_train_step(where, loss, optimizer, net.trainable_variables), batches(where)
    losses.append([float(step(batch_at(t), tf.random.fold_in(seed, t))["error"]) for t in range(3)])


def difference(one, two):
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(one, two, strict=True))


results["network: parameters"] = difference(nets[0].variables, nets[1].variables)
results["network: scalars"] = difference(*losses)
results["network: moments"] = difference(optimizers[0].variables, optimizers[1].variables)
results["network: copies agree"] = copies_agree(nets[1].variables)

checkpoints.save(folder, 3, model=nets[1], optimizer=optimizers[1])
for name, where in {"one": None, "two": strategy}.items():
    with devices.scope(where):
        fresh, again = tf.keras.models.clone_model(nets[0]), tf.keras.optimizers.Adam(0.01)
        again.build(fresh.trainable_variables)
    step = checkpoints.restore(folder, model=fresh, optimizer=again)
    found = difference([*fresh.variables, *again.variables], [*nets[1].variables, *optimizers[1].variables])
    results[f"restored on {name}"] = [step, found, where is None or copies_agree(fresh.variables)]

worker = devices.worker_of(strategy)
results["worker"] = [worker.index, worker.count, worker.num_replicas, worker.is_chief]
results["rows"] = worker.batch_size(6)
devices.check_same_step(strategy, 5)
results["values"] = devices.values_of_chief(strategy, {"a": 3.5, "b": 2.5})
parts = devices.split_batch(strategy, (tf.range(6),))
results["parts"] = [part.numpy().tolist() for part in strategy.experimental_local_results(parts[0])]
errors = {}
for name, call in {
    "rows": lambda: devices.split_batch(strategy, (tf.zeros([3, 1]),)),
    "batch": lambda: worker.batch_size(5),
    "late": lambda: devices.make_strategy("mirrored", num_replicas=3),
    "late threads": lambda: devices.apply_threads(3),
}.items():
    try:
        call()
    except ValueError as error:
        errors[name] = str(error)
results["errors"] = errors
print("RESULTS" + json.dumps(results))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program above finds."""
    folder = str(tmp_path_factory.mktemp("devices") / "checkpoints")
    found: dict[str, Any] = results_of(_PROGRAM.replace("__FOLDER__", repr(folder)))
    return found


def by_hand() -> tuple[np.ndarray, list[dict[str, float]]]:
    """Three gradient steps of 1/8 on mean((X w + noise - y)^2) + 0.1 |w|^2, 16 rows each, in NumPy."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(48, 3)), rng.normal(size=(48, 1))
    w, scalars = np.ones([3, 1]), []
    for t in range(3):
        rows = slice(16 * t, 16 * t + 16)
        key = tf.random.fold_in(tf.constant([3, 5]), t)
        error = X[rows] @ w + tf.random.stateless_normal([16, 1], key, dtype=tf.float64).numpy() - Y[rows]
        scalars.append({"error": float(np.mean(error**2)), "size": float(np.sum(w**2))})
        w = w - 0.125 * (2 / 16 * X[rows].T @ error + 0.2 * w)
    return w[:, 0], scalars


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_step_is_one_gradient_step_on_all_rows(name: str, results: dict[str, Any]) -> None:
    """On one device and on two: gradients are those of the mean over all rows, so the loss of each replica counts half;
    terms without rows count once; noise is that of the whole batch; scalars are means over all rows."""
    w, scalars = by_hand()
    found = results[name]
    np.testing.assert_allclose(found["w"], w, rtol=1e-12)  # float64, sums of 16 terms in another order
    for mine, expected in zip(found["scalars"], scalars, strict=True):
        assert mine.keys() == expected.keys()
        np.testing.assert_allclose(list(mine.values()), list(expected.values()), rtol=1e-12)
    assert found["traced"] == 1
    assert found["copies_agree"]


@pytest.mark.parametrize("what", ["parameters", "scalars", "moments"])
def test_any_network_with_noise(what: str, results: dict[str, Any]) -> None:
    assert results[f"network: {what}"] < 1e-12, results[f"network: {what}"]
    assert results["network: copies agree"]


@pytest.mark.parametrize("where", ["one", "two"])
def test_checkpoint_of_two_replicas_restores(where: str, results: dict[str, Any]) -> None:
    assert results[f"restored on {where}"] == [3, 0.0, True]


def test_worker_and_errors_with_two_devices(results: dict[str, Any]) -> None:
    assert results["threads"] == [1, 1]
    assert results["worker"] == [0, 1, 2, True]
    assert results["rows"] == 6
    assert results["values"] == {"a": 3.5, "b": 2.5}
    assert results["parts"] == [[0, 1, 2], [3, 4, 5]]
    errors = results["errors"]
    assert "a batch must be a multiple of the 2 replicas, got 3 rows" in errors["rows"]
    assert "--batch_size must be a multiple of the 2 replicas, got 5; change it." in errors["batch"]
    assert "--strategy=mirrored came too late" in errors["late"]
    assert errors["late threads"] == "--threads=3 came too late; call apply_threads before any tensor is made."


def test_without_a_strategy(seed: tf.Tensor) -> None:
    strategy = make_strategy("none")
    assert strategy is None
    assert worker_of(strategy) == Worker(0, 1, 1)
    check_same_step(strategy, 7)
    with scope(strategy):
        variable = tf.Variable([1.0, -1.0])
    step = make_train_step(
        strategy,
        lambda x, seed: (tf.reduce_mean(x * variable), {"noise": tf.random.stateless_normal([], seed)}),
        tf.keras.optimizers.SGD(1.0),
        [variable],
    )
    scalars = step(tf.constant([2.0, 4.0]), seed)
    np.testing.assert_allclose(variable, [0.0, -3.0])  # the gradient is x / 2
    np.testing.assert_allclose(scalars["noise"], tf.random.stateless_normal([], seed))
    noise = replica_noise(lambda rows: tf.random.stateless_normal([rows, 2], seed), 3)
    np.testing.assert_array_equal(noise, tf.random.stateless_normal([3, 2], seed))


@pytest.mark.parametrize(
    ("name", "num_replicas", "message"),
    [
        ("all", None, "--strategy must be one of none, mirrored, multi_worker, got 'all'"),
        ("none", 2, "--replicas must be at least 1 and needs --strategy=mirrored"),
        ("mirrored", 0, "--replicas must be at least 1"),
    ],
)
def test_bad_strategies_and_threads(name: str, num_replicas: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_strategy(name, num_replicas=num_replicas)
    apply_threads(0)  # changes nothing, so it is never too late
    with pytest.raises(ValueError, match="--threads must not be negative, got -2"):
        Devices(threads=-2)
    with pytest.raises(ValueError, match="--threads must be at most 4096, got 100000; give one for each CPU"):
        Devices(threads=100_000)
    with pytest.raises(ValueError, match="--replicas must be at least 1 and needs --strategy=mirrored, got 0"):
        Devices(strategy="mirrored", replicas=0)


@pytest.mark.parametrize(
    "config",
    [
        None,
        "no json",
        "{}",
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}',
        '{"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0}}',
        '{"cluster": {"worker": [1]}, "task": {"type": "worker", "index": 0}}',
        '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "worker", "index": 0}}',
    ],
)
def test_bad_tf_config(config: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match="--strategy=multi_worker needs the environment variable TF_CONFIG, such as"):
        make_strategy("multi_worker")


def test_one_process_has_all_rows_and_its_own_values() -> None:
    assert worker_of(None).batch_size(7) == 7
    assert values_of_chief(None, {"a": 1.0, "b": 2.5}) == {"a": 1.0, "b": 2.5}
    batch_at = shared(None, lambda step: (tf.constant(step),))
    assert int(batch_at(3)[0]) == 3


def test_workers_are_numbered_with_the_chief_first() -> None:
    jobs = {"chief": 1, "worker": 2}
    assert [worker_of(two_workers(i, 6, jobs)) for i in range(3)] == [Worker(i, 3, 2) for i in range(3)]
    assert worker_of(two_workers(1, 2, {"worker": 2})) == Worker(1, 2, 1)


def test_workers_share_the_rows_of_a_batch() -> None:
    """Equal parts; which rows they are is tested with the batches, tests/gpflow_deep_runs/data/test_batches.py."""
    workers = [worker_of(two_workers(i, 6, {"worker": 3})) for i in range(3)]
    assert [worker.batch_size(12) for worker in workers] == [4, 4, 4]
    assert [worker.is_chief for worker in workers] == [True, False, False]
    with pytest.raises(ValueError, match="--batch_size must be a multiple of the 6 replicas, got 8"):
        workers[0].batch_size(8)


# ---------------------------------------------------------------------------------------------- GPUs


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is set, on a machine that seems to have two GPUs."""
    made: list[Any] = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0", "GPU:1"])
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda *given: made.append(given))
    monkeypatch.setattr(tf.config.experimental, "enable_op_determinism", lambda: made.append("determinism"))
    return made


def test_a_run_takes_memory_as_it_needs_it_and_computes_the_same_bits(calls: list[Any]) -> None:
    Devices().prepare()
    assert calls == [("GPU:0", True), ("GPU:1", True), "determinism"]


@pytest.mark.parametrize("word", ["0", "False"])
def test_sums_in_any_order_are_a_choice(word: str, calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_DETERMINISTIC_OPS", word)
    prepare_gpus()
    assert calls == [("GPU:0", True), ("GPU:1", True)]


def test_gpus_that_have_started_are_an_error(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("Physical devices cannot be modified after being initialized")

    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", refuse)
    with pytest.raises(ValueError, match="prepare_gpus came too late; call it before any tensor is made"):
        prepare_gpus()
    assert calls == []


# ---------------------------------------------------------------------------------------------- errors of a step


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "Graph execution error:\n\nDetected at node X\nNo space left\n\t [[{{node X}}]] [Op:__inference_f_1]",
            "No space left",
        ),
        ("out of memory", "out of memory"),
        ("[[{{node X}}]]", ""),
    ],
)
def test_own_words(message: str, words: str) -> None:
    assert own_words(message) == words


@pytest.mark.parametrize(
    ("error", "message", "status"),
    [
        (tf.errors.UnavailableError(None, None, "a\nConnection reset"), "has stopped (Connection reset). Start all", 1),
        (
            tf.errors.AbortedError(None, None, ""),
            "another worker has stopped (AbortedError). Start all of them with",
            1,
        ),
        (tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"), "out of memory; lower --batch_size", 1),
        (
            tf.errors.UnimplementedError(None, None, "x\nNo deterministic implementation of sparse_dense_matmul"),
            "for this model (No deterministic implementation of sparse_dense_matmul); set TF_DETERMINISTIC_OPS=0 in",
            1,
        ),
        (MemoryError("cannot allocate 8 GiB"), "make the model smaller. cannot allocate 8 GiB", 1),
        (
            tf.errors.ResourceExhaustedError(None, None, "x\nNo space left on device"),
            "device; free some space, then",
            2,
        ),
        (
            tf.errors.OutOfRangeError(None, None, "{{node}} r/events; File too large\n\tCould not flush events file."),
            "r/events; File too large; free some space, then",
            2,
        ),
        (
            tf.errors.UnknownError(None, None, "r/events; Disk quota exceeded"),
            "r/events; Disk quota exceeded; free some space, then",
            2,
        ),
    ],
)
def test_errors_of_a_step_are_explained(error: Exception, message: str, status: int) -> None:
    explained = explain(error)
    assert explained is not None
    assert message in explained[0]
    assert "\n" not in explained[0]
    assert explained[1] == status


def test_other_errors_are_not_explained_here() -> None:
    for error in (ValueError("x"), tf.errors.InvalidArgumentError(None, None, "x"), OSError("x")):
        assert explain(error) is None
        assert lost_worker(error) is None

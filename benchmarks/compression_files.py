#!/usr/bin/env python3
"""How few bytes can a network for images have by magnitude pruning and shared values, at which error?

    compression_files.py --data_dir=DATA --seeds=0,1,2 --weights=8000,5300 --threads=1 --output=files.json
    compression_files.py --data_dir=DATA --teacher_epochs=12 --models=FOLDER --threads=1
    compression_files.py --data_dir=DATA --dataset=cifar10_jpeg --network=plain.keras --shift=4 --flip --threads=1
    compression_files.py --data_dir=DATA --read=results/files/lenet_5.bcz,results/files/lenet_300_100.bcz

LeNet, or a trained network in a file, is trained by Adam on images that are moved by up to --shift pixels, pruned to
each number of weights in turn, trained on with a rate that falls to 0, and drawn to a few values for each layer. After
each of these a copy goes into a file by `compression.pack`, which chooses bits of biases on training images that are
set aside; the test images are looked at once, for the network before it shares values and for what the file gives back.
Rows are written as soon as they are there. --models keeps the trained networks, from which a later call with another
--values or other epochs for them goes on; without --values there are no files. With --teacher_epochs a LeNet-5 is
trained first on the same training images of MNIST, one for all seeds, and what it says about each moved image takes the
place of the label (Hinton, Vinyals and Dean, 2015): the file is of LeNet-300-100 as before. A network in a file has no
dense epochs. --read trains nothing: it says what files that are there have, bytes and errors.
"""

import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import bench
import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

import compression as bc
from compression.train.engine import falling_rate, flipped, follow, moved_batches
from compression.train.recipes.classification import Examples, parts_of, taught_loss


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder with the files of the known data sets.", flag_values=fv)
    flags.DEFINE_string("dataset", "mnist", "Images, as gpflow_deep_runs.data names them.", flag_values=fv)
    flags.DEFINE_integer("max_images", None, "At most so many, drawn from all but the test images.", 1, flag_values=fv)
    flags.DEFINE_integer("num_valid", 5000, "Of them are set aside.", 1, flag_values=fv)
    flags.DEFINE_string("network", "lenet300", "lenet300, lenet5, or a .keras file.", flag_values=fv)
    # A network by name, or one in a file.
    is_network = re.compile(r"lenet300|lenet5|.*\.keras").fullmatch
    flags.register_validator("network", is_network, "must be lenet300, lenet5 or a .keras file", flag_values=fv)
    flags.DEFINE_list("seeds", ["0", "1", "2"], "Seeds of networks, batches and moves.", flag_values=fv)
    flags.DEFINE_list("weights", ["8000", "5300"], "Weights to keep, the most first.", flag_values=fv)
    flags.DEFINE_list("values", ["16"], "Values that the weights of a layer share.", flag_values=fv)
    flags.DEFINE_bool("per_bit", True, "Prune by w^2 for each bit of a place, and not by |w|.", flag_values=fv)
    flags.DEFINE_list("epochs", ["8", "18", "28"], "Dense, while pruning, and after it.", flag_values=fv)
    flags.DEFINE_list("shared_epochs", ["6", "2"], "While weights are drawn to values, and after it.", flag_values=fv)
    flags.DEFINE_float("shared_rate", 5e-4, "Of Adam in these.", 0.0, flag_values=fv)
    flags.DEFINE_float("bit_rate", 0.01, "What a bit of a value is worth, see ValueSharing.", 0.0, flag_values=fv)
    flags.DEFINE_integer("shift", 1, "Pixels by which images are moved at most.", 0, flag_values=fv)
    flags.DEFINE_integer("teacher_epochs", 0, "Of a LeNet-5 that teaches; 0: no teacher.", 0, flag_values=fv)
    flags.DEFINE_float("temperature", 3.0, "By which logits are divided to learn from a teacher.", 0.1, flag_values=fv)
    flags.DEFINE_bool("flip", False, "Mirror half of the images.", flag_values=fv)
    flags.DEFINE_string("models", None, "Folder to keep trained networks in, of one --network.", flag_values=fv)
    flags.DEFINE_string("files", None, "Folder to keep the files in.", flag_values=fv)
    flags.DEFINE_list("read", [], "Files to measure, in place of networks to train.", flag_values=fv)
    flags.DEFINE_integer("batch_size", 200, "Images in a step.", 1, flag_values=fv)
    flags.DEFINE_float("learning_rate", 1e-3, "Of Adam.", 0.0, flag_values=fv)
    flags.DEFINE_float("max_rise", 0.05, "Percent of error set aside that coarser biases may add.", flag_values=fv)
    bench.define_common(fv)


def from_teacher(logits: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """For Keras: `taught_loss` at the temperature of the flag."""
    return taught_loss(logits, outputs, flags.FLAGS.temperature)


def taught(teacher: keras.Model, examples: Examples, *, batch_size: int, seed: int) -> tf.data.Dataset:
    """Whole batches of moved images and the logits of the teacher for them, each move equally likely."""
    most = flags.FLAGS.shift
    height, width = examples.X.shape[1:3]
    # Each image at each place, and what the teacher says of it, once for all epochs.
    edged = np.pad(examples.X, [(0, 0), (most, most), (most, most), (0, 0)], mode="edge")
    moves = [(i, j) for i in range(2 * most + 1) for j in range(2 * most + 1)]
    images = np.stack([edged[:, i : i + height, j : j + width] for i, j in moves], axis=1)
    says = np.stack([teacher.predict(images[:, m], batch_size=500, verbose=0) for m in range(len(moves))], axis=1)
    rows = tf.constant(images)
    table = tf.constant(says)
    # Then batches draw an image and a place for it.
    which = tf.data.Dataset.range(len(rows)).shuffle(len(rows), seed=seed)
    move = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).map(lambda drawn: drawn % len(moves))
    pairs = tf.data.Dataset.zip((which, move)).map(lambda *pair: tf.stack(pair)).batch(batch_size, drop_remainder=True)
    return pairs.map(lambda at: (tf.gather_nd(rows, at), tf.gather_nd(table, at))).prefetch(2)


def teacher_of(parts: dict[str, Examples]) -> keras.Model:
    """LeNet-5 by Adam with a falling rate."""
    flag = flags.FLAGS
    path = Path(flag.models or "", "teacher.keras")
    if flag.models and path.exists():
        return keras.models.load_model(path)
    teacher = bc.networks.build("lenet5", (28, 28, 1), 10, seed=0)
    data = moved_batches(parts["train"], most=flag.shift, batch_size=100, seed=0)
    train(teacher, data, flag.teacher_epochs, flag.learning_rate, falls_from=0.0)
    print("teacher", errors_of(teacher, parts), f"{time.process_time():.0f} s", flush=True)
    if flag.models:
        path.parent.mkdir(parents=True, exist_ok=True)
        teacher.save(path)
    return teacher


def errors_of(network: keras.Model, parts: dict[str, Examples]) -> dict[str, float]:
    """In percent, of the images set aside and of the test images."""
    return {f"{name}_percent": bc.error_percent(network, parts[name]) for name in ("valid", "test")}


def new_network(shape: Sequence[int], seed: int) -> keras.Model:
    """As --network says: with random weights, or those of its file."""
    name = flags.FLAGS.network
    return bc.networks.load(name) if name.endswith(".keras") else bc.networks.build(name, shape, 10, seed=seed)


def mirrored(data: tf.data.Dataset, seed: int) -> tf.data.Dataset:
    """Half of the images, other ones in each pass."""
    seeds = tf.data.Dataset.random(seed=seed + 1, rerandomize_each_iteration=True).batch(2)
    pairs = tf.data.Dataset.zip((data, seeds))
    return pairs.map(lambda batch, by: (flipped(batch[0], tf.cast(by % 2**31, tf.int32)), batch[1])).prefetch(2)


def train(
    model: keras.Model,
    data: tf.data.Dataset,
    epochs: int,
    rate: float,
    *callbacks: keras.callbacks.Callback,
    falls_from: float = 1.0,
) -> None:
    """By a new Adam, whose rate falls to 0 after this part of the epochs."""
    # Logits of a teacher are a matrix, labels are not.
    is_taught = data.element_spec[1].shape.rank == 2
    loss = from_teacher if is_taught else keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.Adam(rate)
    rate_of = falling_rate(optimizer, epochs * int(data.cardinality()), decay_from=falls_from)
    follow(model, optimizer, loss, learning_rate=rate_of, callbacks=callbacks)
    model.fit(data, epochs=epochs, verbose=0, callbacks=list(callbacks))


def pruned(seed: int, data: tf.data.Dataset, shape: Sequence[int]) -> Iterator[tuple[int, keras.Model, float]]:
    """Numbers of weights, networks with so many, and the CPU seconds up to them."""
    flag = flags.FLAGS
    dense, pruning, after = map(int, flag.epochs)
    model = None
    seconds = 0.0
    rate = flag.learning_rate
    for number, count in enumerate(map(int, flag.weights)):
        # What an earlier call has left.
        path = Path(flag.models or "", f"{seed}_{number}_{count}.keras")
        if flag.models and path.exists():
            model = keras.models.load_model(path)
            seconds = float(path.with_suffix(".txt").read_text(encoding="utf-8"))
            yield count, model, seconds
            continue
        start = time.process_time()
        if model is None:
            model = new_network(shape, seed)
            train(model, data, 0 if flag.network.endswith(".keras") else dense, rate)
        # Pruning to so many weights, then training of what is left.
        epochs = pruning if number == 0 else pruning // 2
        part = count / bc.size_of(model).weights
        by = bc.MagnitudePruning(model, keep=part, epochs=0.9 * epochs, per_bit=flag.per_bit)
        train(model, data, epochs, rate, by)
        train(model, data, after, rate, falls_from=0.0)
        model = bc.shrink(model, keep_inputs=True)
        seconds += time.process_time() - start
        if flag.models:
            path.parent.mkdir(parents=True, exist_ok=True)
            model.save(path)
            path.with_suffix(".txt").write_text(f"{seconds}", encoding="utf-8")
        yield count, model, seconds


def rows_of(seed: int, parts: dict[str, Examples], teacher: keras.Model | None) -> Iterator[bench.Row]:
    """Results of the networks of a seed, one after the other."""
    flag = flags.FLAGS
    keras.utils.set_random_seed(seed)
    if teacher is None:
        data = moved_batches(parts["train"], most=flag.shift, batch_size=flag.batch_size, seed=seed)
    else:
        data = taught(teacher, parts["train"], batch_size=flag.batch_size, seed=seed)
    if flag.flip:
        data = mirrored(data, seed)
    shape = parts["train"].X.shape[1:]
    size = bc.size_of(new_network(shape, seed))
    for count, model, seconds in pruned(seed, data, shape):
        percent = {f"{name}_float": error for name, error in errors_of(model, parts).items()}
        print("seed", seed, "weights", count, percent, f"{seconds:.0f} s", flush=True)
        # A file for each number of values that a layer may have.
        for k in map(int, flag.values):
            start = time.process_time()
            small = bc.shrink(model, keep_inputs=True)
            drawn, last = map(int, flag.shared_epochs)
            sharing = bc.ValueSharing(small, k, epochs=drawn, rate=flag.bit_rate, seed=seed)
            train(small, data, drawn + last, flag.shared_rate, sharing, falls_from=0.3)
            shared = {"valid_percent_shared": bc.error_percent(small, parts["valid"])}
            row = {"seed": seed, "weights": count, "values": k} | percent | shared
            row |= file_of(small, parts, size, f"{seed}_{count}_{k}.bcz")
            yield row | {"seconds": seconds + time.process_time() - start}


def file_of(small: keras.Model, parts: dict[str, Examples], size: bc.Size, name: str) -> bench.Row:
    """Write a network; its size, and errors of what the file gives back."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(flags.FLAGS.files or folder)
        place.mkdir(parents=True, exist_ok=True)
        packed = bc.pack(
            small,
            place / name,
            validate=lambda network: bc.error_percent(network, parts["valid"]),
            max_rise=flags.FLAGS.max_rise,
            original=size,
        )
        errors = errors_of(bc.load(packed.path), parts)
    # What is left of it, and the figures of the file.
    num_kept = sum(int(np.count_nonzero(w)) for w in small.get_weights() if w.ndim > 1)
    architecture = [layer.units for layer in small.layers if isinstance(layer, keras.layers.Dense)]
    return {"kept": num_kept, "units": architecture, "bytes": packed.bytes, "smaller": packed.file_rate, **errors}


def main(flag: flags.FlagValues) -> None:
    if flag.teacher_epochs and (flag.flip or flag.dataset != "mnist"):
        raise app.UsageError("--teacher_epochs is for MNIST without --flip; leave one of them out.")
    parts = parts_of(
        bench.load(flag.dataset, flag.data_dir, "images", num_valid=flag.num_valid, max_images=flag.max_images).parts
    )
    rows: Iterable[bench.Row]
    if flag.read:
        rows = ({"bytes": Path(file).stat().st_size, **errors_of(bc.load(file), parts)} for file in flag.read)
    else:
        teacher = teacher_of(parts) if flag.teacher_epochs else None
        rows = (row for seed in map(int, flag.seeds) for row in rows_of(seed, parts, teacher))
    bench.write_rows(rows, f"{flag.dataset} as gpflow_deep_runs.data checks it")


if __name__ == "__main__":
    bench.run(define_flags, main)

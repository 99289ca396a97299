#!/usr/bin/env python3
"""How wrong is a network for MNIST or digits that minimal random codes write into so many bytes?

    compression_miracle.py --data_dir=DATA --network=lenet300 --seeds=0,1,2 --bytes=2000,4600 --output=miracle.json

The network, LeNet for MNIST or two layers of 64 units for digits, is trained by Adam, on images of MNIST that are moved
by up to a pixel, or read from --models, where it is kept; then `compression.random_code` gives it a posterior of so
many bits and codes it block by block, as often as there are sizes. Images that are set aside, 5,000 of MNIST, are
looked at, as the test images, for what the file gives back alone. Rows are written as soon as they are there.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import bench
import keras
import tensorflow as tf
from absl import flags

import compression as bc
from compression.train.engine import moved_batches
from compression.train.recipes.classification import Examples, parts_of

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_string("data_dir", None, "Folder with the files of the known data sets.", flag_values=fv)
    flags.DEFINE_enum("network", "lenet300", ["lenet300", "lenet5", "digits"], "Which network.", flag_values=fv)
    flags.DEFINE_list("seeds", ["0", "1", "2"], "Seeds of networks, batches, moves and draws.", flag_values=fv)
    flags.DEFINE_list("bytes", ["4600"], "Sizes of files.", flag_values=fv)
    flags.DEFINE_integer("block_bits", 14, "Bits of a block.", 1, flag_values=fv)
    flags.DEFINE_integer("dense_epochs", 8, "Of the network before.", 0, flag_values=fv)
    flags.DEFINE_float("epochs", 20, "Of the posterior.", 0.0, flag_values=fv)
    flags.DEFINE_float("code_epochs", 20, "While blocks are coded.", 0.0, flag_values=fv)
    flags.DEFINE_list("sharing", [], "Of each layer with a kernel, how many weights share one.", flag_values=fv)
    flags.DEFINE_string("models", None, "Folder to keep the networks before in.", flag_values=fv)
    flags.DEFINE_string("files", None, "Folder to keep the files in.", flag_values=fv)
    flags.DEFINE_integer("batch_size", 200, "Images in a step.", 1, flag_values=fv)
    flags.DEFINE_float("learning_rate", 3e-3, "Of Adam, of the posterior.", 0.0, flag_values=fv)
    bench.define_common(fv)


def dense(seed: int, data: tf.data.Dataset) -> keras.Model:
    """The network before."""
    flag = flags.FLAGS
    path = Path(flag.models or "", f"{flag.network}_{seed}.keras")
    if flag.models and path.exists():
        return keras.models.load_model(path)
    # Two small layers for digits, LeNet for MNIST.
    if flag.network == "digits":
        units = [keras.layers.Dense(64, "relu"), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)]
        model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), *units])
    else:
        model = bc.networks.build(flag.network, (28, 28, 1), 10, seed=seed)
    model.compile(keras.optimizers.Adam(1e-3), LOSS, jit_compile=False)
    model.fit(data, epochs=flag.dense_epochs, verbose=0)
    if flag.models:
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save(path)
    return model


def rows_of(seed: int, parts: dict[str, Examples]) -> Iterator[bench.Row]:
    """Results of a seed, for one size after the other."""
    flag = flags.FLAGS
    keras.utils.set_random_seed(seed)
    most = 0 if flag.network == "digits" else 1
    data = moved_batches(parts["train"], most=most, batch_size=flag.batch_size, seed=seed)
    start = time.process_time()
    model = dense(seed, data)
    before = {f"{name}_percent_before": bc.error_percent(model, parts[name]) for name in ("valid", "test")}
    print("seed", seed, before, f"{time.process_time() - start:.0f} s", flush=True)
    names = [layer.name for layer in model.layers if hasattr(layer, "kernel")]
    # A code of each size, by which the network is drawn again.
    for size in map(int, flag.bytes):
        start = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            place = Path(flag.files or folder)
            place.mkdir(parents=True, exist_ok=True)
            coded = bc.random_code(
                *(model, place / f"{flag.network}_{seed}_{size}.bcz", data),
                loss=LOSS,
                num_bytes=size,
                block_bits=flag.block_bits,
                epochs=flag.epochs,
                code_epochs=flag.code_epochs,
                learning_rate=flag.learning_rate,
                sharing=dict(zip(names, map(int, flag.sharing), strict=bool(flag.sharing))),
                seed=seed,
            )
            network = bc.load(coded.path)
        # Of the network that the file gives back alone.
        errors = {f"{name}_percent": bc.error_percent(network, parts[name]) for name in ("valid", "test")}
        sizes = {"bytes": coded.bytes, "blocks": len(coded.kl_bits), "bits": flag.block_bits}
        rates = {"kl_bits": float(coded.kl_bits.mean()), "smaller": 4 * bc.size_of(model).parameters / coded.bytes}
        yield {"seed": seed, **sizes, **before, **errors, **rates, "seconds": time.process_time() - start}


def main(flag: flags.FlagValues) -> None:
    parts = parts_of(
        bench.load("digits" if flag.network == "digits" else "mnist", flag.data_dir, "images", num_valid=5000).parts
    )
    rows = (row for seed in map(int, flag.seeds) for row in rows_of(seed, parts))
    bench.write_rows(rows, "as gpflow_deep_runs.data checks them")


if __name__ == "__main__":
    bench.run(define_flags, main)

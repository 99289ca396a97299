"""`scripts/compress_network.py` on small images: what a run leaves behind, that it goes on, and its errors."""

import re
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import pytest

from compression.files.container import load_bcz
from compression.networks import build
from gpflow_deep_runs.cli.flags import named_flags, parse, text
from gpflow_deep_runs.data import views
from scripts.compress_network import Flags, main
from tests.scripts.running import Finished, called, lines_of, result_of, run

SMALL = ["--noprogress", "--batch_size=64", "--max_images=400", "--codebooks=8", "--tolerance=2"]
SHRINKING = [
    "--network=own.keras",
    "--epochs=2",
    "--warmup=1",
    "--shrink_every=1",
    "--polish_epochs=1",
    "--learning_rate=0.01",
    "--shift=1",
    "--initial_log_std=-3",
    "--threshold=-5.5",
    *SMALL,
]
QUICK = ["--epochs=1", *SMALL]
ERRORS: list[tuple[list[str], str]] = [
    (["--dataset=mnist"], "data set 'mnist' needs .*--data_dir"),
    (["--dataset=nothing"], "--dataset must be one of"),
    (["--data=nothing.npz"], "there is none at nothing.npz"),
    (["--data=tiny.npz", "--dataset=digits"], "give --dataset or --data, not both"),
    (["--network=own"], "network=own needs the file of the network"),
    (["--pretrained=nothing.keras"], "there is none at nothing.keras"),
    (["--network=own", "--pretrained=own.keras", "--data=tiny.npz", "--batch_size=8"], r"takes inputs \(8, 8, 1\)"),
    (["--network=own.keras", "--pretrained=own.keras"], "give network=own.keras or pretrained=own.keras, not both"),
    (["--data=flowers.csv", "--target=kind"], "are no images: give a network of your own, --network=FILE.keras"),
    (["--network=flowers.keras", "--data=flowers.csv", "--target=width"], "must have one output for each target"),
    (["--threshold=1,2"], "threshold must be one number, or one for each of 4 layers, got 2"),
    (["--codebooks=16,1000"], "codebooks must list different numbers from 1 to 256, got 16,1000"),
    (["--batch_size=5000"], "batch_size must be between 1 and the 360 training examples, got 5000"),
    (["--num_valid=0"], "--num_valid must be at least 1, got 0"),
    (["--max_images=0"], "--max_images must be at least 1, got 0"),
    (["--export=full"], "--export=full must be a new or empty folder"),
    (["--strategy=multi_worker"], "--strategy must be none or mirrored here, got multi_worker"),
    (["--replicas=2"], "--replicas must be at least 1 and needs --strategy=mirrored, got 2 and none"),
    (["--resume"], "holds no run to resume"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compress")
    X = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), np.uint8)
    labels = np.arange(24) % 3
    np.savez(folder / "tiny.npz", X=X, labels=labels, X_test=X[:5], labels_test=labels[:5])
    build("small", (8, 8, 1), 10, seed=1).save(folder / "own.keras")
    rng, kinds = np.random.default_rng(1), np.arange(90) % 3
    table = pd.DataFrame({"width": rng.normal(size=90) + kinds, "height": rng.normal(size=90), "kind": kinds})
    table.assign(kind=table.kind.map({0: "rose", 1: "lily", 2: "iris"})).to_csv(folder / "flowers.csv", index=False)
    layers = [keras.layers.Normalization(mean=[0, 0], variance=[1, 1]), keras.layers.Dense(12, "relu")]
    keras.Sequential([keras.Input([2]), *layers, keras.layers.Dense(3)]).save(folder / "flowers.keras")
    heights = [keras.layers.Dense(8, "relu"), keras.layers.Dense(1)]
    keras.Sequential([keras.Input([4]), *heights]).save(folder / "heights.keras")
    keras.Sequential([keras.Input([64]), keras.layers.Dense(9, "relu"), keras.layers.Dense(10)]).save(
        folder / "flat.keras"
    )
    (folder / "full").mkdir()
    (folder / "full" / "file").touch()
    return folder


def call(folder: Path, name: str, *arguments: str) -> Finished:
    """The script, called in this process and in `folder`, with --run_dir=`name`."""
    return called(main, "compress_network.py", folder, [f"--run_dir={name}", *arguments])


@pytest.fixture(scope="module")
def whole(folder: Path) -> Finished:
    return call(folder, "whole", *SHRINKING)


def test_results_are_of_the_files_on_disk(folder: Path, whole: Finished) -> None:
    assert whole.code == 0, whole.err
    result = result_of(folder, "whole")
    digits = views.load(views.Source(dataset="digits"), "images", max_images=400)
    assert (result["dataset"], result["network"], result["prior"], result["epochs"]) == ("digits", "own", "gnj", 2)
    assert [result[f"{part}_images"] for part in ("train", "valid", "test")] == [360, 40, 300]
    assert set(result["networks"]) == {"plain", "masked", "shrunk", "rule", "search", "book 8"}
    assert sum(result["kept_weights"]) < result["original_weights"] == 2832
    for name, file in (("shrunk", "shrunk"), ("search", "fixed"), ("rule", "fixed_rule"), ("book 8", "book_8")):
        path, stored = folder / "whole" / "files" / f"{file}.bcz", result["networks"][name]
        assert stored["bytes"] == path.stat().st_size
        assert stored["file_rate"] == pytest.approx(4 * 2938 / path.stat().st_size)
        for part in ("valid", "test"):
            X, labels = digits.parts[part]
            wrong = np.asarray(load_bcz(path)(X)).argmax(axis=1) != labels[:, 0]
            assert stored[f"{part}_percent"] == pytest.approx(100 * np.mean(wrong)), (name, part)
    assert result["networks"]["search"]["valid_percent"] <= result["networks"]["shrunk"]["valid_percent"] + 2.0 + 1e-6


def test_what_is_printed_is_what_is_stored(folder: Path, whole: Finished) -> None:
    result = result_of(folder, "whole")
    sizes = "-".join(map(str, result["architecture"]))
    assert f"architecture {sizes}, {sum(result['kept_weights'])} weights" in whole.out
    search = result["networks"]["search"]
    assert re.search(
        rf"search +{search['valid_percent']:.2f} +{search['test_percent']:.2f} +{search['bytes']}", whole.out
    )
    assert "published" not in whole.out  # these are not the paper's data
    assert result["published"] is None


def test_the_run_folder_holds_curves_and_plots(folder: Path, whole: Finished) -> None:
    assert whole.code == 0, whole.err
    lines, thresholds = lines_of(folder, "whole"), result_of(folder, "whole")["thresholds"]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert thresholds == {"conv2d": -5.5, "conv2d_1": -5.5, "dense": -5.5, "dense_1": -5.5}
    for line in lines:
        assert {f"{name}/kl_scales_nats" for name in thresholds} <= set(line)
        kls = [
            value for tag, value in line.items() if re.search(r"/kl_\w+_nats$", tag) and not tag.startswith("train/")
        ]
        assert line["train/kl_nats"] == pytest.approx(sum(kls))
    assert lines[-1]["valid/error_percent"] == result_of(folder, "whole")["networks"]["masked"]["valid_percent"]
    assert {path.name for path in (folder / "whole" / "plots").iterdir()} == {
        "latency_by_layer.svg",
        "thresholds.svg",
        "bits.svg",
    }


def test_a_run_goes_on_to_the_same_bits_where_it_shrinks(folder: Path, whole: Finished) -> None:
    """Stopped after its first epoch, before which the network became Bayesian; it is cut before the second."""
    assert whole.code == 0, whole.err
    stopped = call(folder, "half", *SHRINKING, "--max_seconds=0")
    assert stopped.code == 0
    assert "stopped by max_seconds after step 1" in stopped.err
    assert call(folder, "half", "--resume", *SHRINKING).code == 0
    assert len(list((folder / "half" / "checkpoints").glob("network-*.json"))) == 2
    for path in sorted((folder / "whole" / "files").iterdir()):
        assert path.read_bytes() == (folder / "half" / "files" / path.name).read_bytes(), path.name
    assert lines_of(folder, "whole") == lines_of(folder, "half")


@pytest.mark.parametrize(("arguments", "message"), ERRORS, ids=[" ".join(arguments) for arguments, _ in ERRORS])
def test_errors_name_the_flag_and_leave_nothing(folder: Path, arguments: list[str], message: str) -> None:
    done = call(folder, "error", *QUICK, *arguments)
    assert done.code == 2, done.out + done.err
    assert re.search(message, done.err), done.err
    assert "Traceback" not in done.err
    assert not (folder / "error").exists()


def test_flags_are_those_of_the_python_interface() -> None:
    """What is counted by the recipe itself is no flag, and stored flags make the same run again."""
    names = {flag.name for flag in named_flags(Flags)}
    assert {"epochs", "threshold", "codebooks", "network", "num_valid", "export", "checkpoint_seconds"} <= names
    assert names.isdisjoint({"num_steps", "log_every", "checkpoint_every", "valid", "export_dir"})
    flags = parse(Flags, ["--run_dir=x", "--threshold=-1,2.5", "--codebooks=", "--warmup=0", "--seed=7"])
    assert (flags.recipe.pruning.threshold, flags.files.codebooks, flags.recipe.warmup) == ((-1.0, 2.5), (), 0.0)
    assert parse(Flags, ["--run_dir=x", *text(flags).splitlines()]) == flags


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--threshold=-99"], 2, "is pruned to nothing"),
        (["--learning_rate=1e30"], 1, "training diverged in epoch 1: the loss is not finite; lower learning_rate"),
    ],
)
def test_errors_of_training(folder: Path, flags: list[str], code: int, message: str) -> None:
    done = call(folder, f"bad{flags[0]}", *QUICK, *flags)
    assert done.code == code, done.err
    assert re.search(message, done.err), done.err


@pytest.mark.slow
@pytest.mark.ci
def test_two_replicas_do_what_one_device_does(folder: Path) -> None:
    """A Bayesian and a shrunk epoch; with two replicas stopped and resumed between them. In processes of their own, as
    devices are set before TensorFlow starts."""
    common = [*SHRINKING, "--epochs=1", "--bits=rule"]
    replicas = ["--strategy=mirrored", "--replicas=2", *common]
    bad = run("compress_network.py", ["--run_dir=odd", *replicas, "--batch_size=63"], folder)
    stopped = run("compress_network.py", ["--run_dir=replicas", *replicas, "--max_seconds=0"], folder)
    two = run("compress_network.py", ["--run_dir=replicas", *replicas, "--resume"], folder)
    one = call(folder, "single", *common)
    assert bad.code == 2
    assert "batch_size must be a multiple of the 2 replicas, got 63" in bad.err
    assert "stopped by max_seconds after step 1" in stopped.err
    assert (two.code, one.code) == (0, 0), two.err + one.err
    lines = lines_of(folder, "replicas"), lines_of(folder, "single")
    assert len(lines[0]) == len(lines[1]) == 2
    for of_two, of_one in zip(*lines, strict=True):
        assert of_two == pytest.approx(of_one, rel=1e-5)
    assert result_of(folder, "replicas")["architecture"] == result_of(folder, "single")["architecture"]
    assert sum(result_of(folder, "single")["kept_weights"]) < result_of(folder, "single")["original_weights"]


@pytest.mark.slow
def test_sparse_variational_dropout_of_single_weights(folder: Path) -> None:
    arguments = ["--prior=svd", "--kl=exact", "--network=lenet300", "--std_cap=0.2", "--bits=rule", "--tune_steps=3"]
    done = call(folder, "svd", *arguments, *QUICK)
    assert done.code == 0, done.err
    result = result_of(folder, "svd")
    columns = [*result["architecture"][1:], 10]
    words = sum(2 * n + c + 1 for n, c in zip(result["kept_weights"], columns, strict=True))
    pruning = result["rates_as_in_paper"]["rule"]["pruning"]
    assert pruning == pytest.approx(result["original_weights"] / words)
    assert (folder / "svd" / "plots" / "inputs_that_are_kept.png").is_file()


@pytest.mark.slow
def test_exports(folder: Path) -> None:
    """LeNet-5 on a few images, and every file that --export promises."""
    arguments = ["--network=lenet5", "--data=tiny.npz", "--epochs=1", "--noprogress"]
    done = call(folder, "colours", *arguments, "--prior=ghs", "--batch_size=8", "--codebooks=2", "--export=exported")
    assert done.code == 0, done.err
    assert {path.name for path in (folder / "exported").iterdir()} == {
        "saved_model",
        "float32.tflite",
        "float16.tflite",
        "int8.tflite",
        "weights.npz",
        "network.keras",
    }


def test_a_table_of_classes(folder: Path) -> None:
    """An own network with a layer that is left whole, on rows of a file in their own units."""
    arguments = ["--network=flowers.keras", "--data=flowers.csv", "--target=kind", "--epochs=1", "--batch_size=8"]
    done = call(folder, "table", *arguments, "--noprogress", "--codebooks=8", "--tolerance=20")
    assert done.code == 0, done.err
    result = result_of(folder, "table")
    assert result["train_images"] + result["valid_images"] + result["test_images"] == 90
    network = load_bcz(folder / "table" / "files" / "fixed.bcz")
    assert network.input_shape == (None, 2)
    assert network.output_shape == (None, 3)


@pytest.mark.slow
@pytest.mark.ci
def test_a_table_of_numbers(folder: Path) -> None:
    """The errors of a regression are those of the file, by NumPy; the network is one that is left whole in part."""
    arguments = ["--network=heights.keras", "--data=flowers.csv", "--target=width", "--pretrain_epochs=2", "--epochs=2"]
    done = call(
        folder, "numbers", *arguments, "--polish_epochs=1", "--kl_weight=0.001", "--tolerance=5", "--noprogress"
    )
    assert done.code == 0, done.err
    result = result_of(folder, "numbers")
    assert result["packed"]["bytes"] == (folder / "numbers" / "files" / "model.bcz").stat().st_size
    assert result["file"]["valid"] == result["packed"]["error"] <= result["packed"]["error_before"] + 5
    assert set(result["plain"]) == set(result["file"]) == {"train", "valid", "test"}
    assert f"file: valid {result['file']['valid']:.2f} %, test {result['file']['test']:.2f} %" in done.out
    assert load_bcz(folder / "numbers" / "files" / "model.bcz").output_shape == (None, 1)


def test_flat_images_for_a_network_of_vectors(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All results are there if in the end another program has no operations for the network."""

    def refuse(*_: object) -> None:
        raise ValueError("TensorFlow Lite cannot hold the network")

    monkeypatch.setattr("scripts.compress_network.export_all", refuse)
    done = call(folder, "flat", "--network=flat.keras", *QUICK, "--export=nowhere")
    assert done.code == 2
    assert "TensorFlow Lite cannot hold the network" in done.err
    assert result_of(folder, "flat")["network"] == "own"
    assert load_bcz(folder / "flat" / "files" / "shrunk.bcz").input_shape == (None, 64)

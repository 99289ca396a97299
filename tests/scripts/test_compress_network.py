"""`scripts/compress_network.py` from the command line on small images: what it leaves behind, and its errors."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compression.container import load_bcz
from compression.networks import small
from experiment.data.sets.images import load_images
from tests.scripts.running import Finished, run, run_many

SMALL = ["--noprogress", "--batch_size=64", "--max_images=400", "--codebooks=8", "--tolerance=2"]
SHRINKING = [
    "--network=own",
    "--pretrained=own.keras",
    "--pretrain_epochs=1",
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
CALLS: dict[str, list[str]] = {
    "whole": SHRINKING,
    "half": [*SHRINKING, "--max_seconds=0"],
    "half 2": ["--resume", *SHRINKING, "--max_seconds=0"],
    "half 3": ["--resume", *SHRINKING, "--max_seconds=0"],
    "half 4": ["--resume", *SHRINKING],
}
ERRORS: list[tuple[list[str], str]] = [
    (["--dataset=mnist"], "data set 'mnist' needs .*--data_dir"),
    (["--dataset=nothing"], "--dataset must be one of"),
    (["--data=nothing.npz"], "there is none at nothing.npz"),
    (["--network=own"], "needs the file of the network"),
    (["--pretrained=nothing.keras"], "there is none at nothing.keras"),
    (["--network=own", "--pretrained=own.keras", "--data=tiny.npz", "--batch_size=8"], r"takes inputs \(8, 8, 1\)"),
    (["--threshold=low"], "--threshold must be auto or numbers, got low"),
    (["--codebooks=16,1000"], "--codebooks must list numbers from 1 to 256"),
    (["--batch_size=5000"], "--batch_size=5000 is more than the"),
    (["--export_dir=full"], "--export_dir=full must be a new or empty folder"),
    (["--strategy=multi_worker"], "--strategy must be none or mirrored here, got multi_worker"),
    (["--replicas=2"], "--replicas must be at least 1 and needs --strategy=mirrored, got 2 and none"),
    (["--resume"], "holds no run to resume"),
    (["stray"], "all arguments must be flags, --name=value, got 'stray'"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compress")
    X = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), np.uint8)
    labels = np.arange(24) % 3
    np.savez(folder / "tiny.npz", X=X, labels=labels, X_test=X[:5], labels_test=labels[:5])
    small(seed=1).save(folder / "own.keras")
    (folder / "full").mkdir()
    (folder / "full" / "file").touch()
    return folder


@pytest.fixture(scope="module")
def finished(folder: Path) -> dict[str, Finished]:
    calls = {name: [f"--run_dir={name.split()[0]}", *call] for name, call in CALLS.items()}
    calls |= {
        "again": ["--run_dir=whole", *CALLS["whole"]],
        "other": ["--run_dir=half", "--resume", *SHRINKING, "--prior=ghs"],
    }
    calls |= {f"error {i}": [f"--run_dir=error{i}", *QUICK, *arguments] for i, (arguments, _) in enumerate(ERRORS)}
    return dict(zip(calls, run_many("compress_network.py", list(calls.values()), folder), strict=True))


def result_of(folder: Path, run: str) -> dict[str, Any]:
    return json.loads((folder / run / "result.json").read_text())


@pytest.mark.parametrize("name", ["whole", "half 4"])
def test_a_run_ends_well(finished: dict[str, Finished], name: str) -> None:
    assert finished[name].code == 0, finished[name].err
    assert re.search(r"^architecture [\d-]+, \d+ weights$", finished[name].out, re.MULTILINE)


def test_results_are_of_the_files_on_disk(folder: Path, finished: dict[str, Finished]) -> None:
    del finished
    result, digits = result_of(folder, "whole"), load_images("digits")
    assert set(result["networks"]) == {"masked", "shrunk", "rule", "search", "book 8"}
    masked, shrunk = (result["networks"][name]["test_percent"] for name in ("masked", "shrunk"))
    assert masked == shrunk
    assert sum(result["kept_weights"]) < result["original_weights"]
    rates = result["rates_as_in_paper"]["search"]
    assert rates["pruning"] == pytest.approx(result["original_weights"] / sum(result["kept_weights"]))
    spent = sum(n * bits for n, bits in zip(result["kept_weights"], result["bits"]["search"], strict=True))
    assert rates["fast"] == pytest.approx(32 * result["original_weights"] / spent)
    for name, file in (("shrunk", "shrunk"), ("search", "fixed"), ("rule", "fixed_rule"), ("book 8", "book_8")):
        path = folder / "whole" / "files" / f"{file}.bcz"
        stored = result["networks"][name]
        assert stored["bytes"] == path.stat().st_size
        assert stored["file_rate"] == pytest.approx(4 * result["original_parameters"] / path.stat().st_size)
        outputs = np.asarray(load_bcz(path)(digits.scaled(digits.X_test)))
        assert stored["test_percent"] == pytest.approx(100 * np.mean(outputs.argmax(axis=1) != digits.labels_test))
    assert result["networks"]["search"]["valid_percent"] <= result["networks"]["shrunk"]["valid_percent"] + 2.0 + 1e-6
    assert (folder / "whole" / "row.md").read_text().startswith("| own | gnj | 2 |")


def test_the_run_folder_holds_curves_and_plots(folder: Path, finished: dict[str, Finished]) -> None:
    del finished
    lines = [json.loads(line) for line in (folder / "whole" / "scalars.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert any(tag.endswith("/kl_scales_nats") for tag in lines[-1])
    assert lines[-1]["valid/error_percent"] == result_of(folder, "whole")["networks"]["masked"]["valid_percent"]
    assert {path.name for path in (folder / "whole" / "plots").iterdir()} == {"thresholds.png", "bits.png"}


def test_a_run_goes_on_to_the_same_bits_where_it_shrinks(folder: Path, finished: dict[str, Finished]) -> None:
    """The half run stopped after each of its epochs: plain, Bayesian, shrunk."""
    for name, step in (("half", 1), ("half 2", 2), ("half 3", 3)):
        assert f"stopped by max_seconds after step {step}" in finished[name].err
    assert len(list((folder / "whole" / "checkpoints").glob("network-*.json"))) >= 2
    for path in sorted((folder / "whole" / "files").iterdir()):
        assert path.read_bytes() == (folder / "half" / "files" / path.name).read_bytes(), path.name
    whole, half = ((folder / name / "scalars.jsonl").read_text() for name in ("whole", "half"))
    assert whole == half


def test_a_finished_run_is_neither_overwritten_nor_changed(finished: dict[str, Finished]) -> None:
    assert finished["again"].code == 2
    assert "already holds a run" in finished["again"].err
    assert finished["other"].code == 2
    assert "--prior=ghs" in finished["other"].err


@pytest.mark.parametrize("number", range(len(ERRORS)), ids=[" ".join(arguments) for arguments, _ in ERRORS])
def test_errors_name_the_flag(finished: dict[str, Finished], number: int) -> None:
    done, (_, message) = finished[f"error {number}"], ERRORS[number]
    assert done.code == 2, done.out + done.err
    assert re.search(message, done.err), done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--threshold=-99"], "is pruned to nothing"),
        (["--threshold=1,2"], "or one for each of 4 layers, got 2"),
        (["--learning_rate=1e30"], "training diverged in epoch 1"),
    ],
)
def test_errors_of_training(folder: Path, flags: list[str], message: str) -> None:
    done = run("compress_network.py", [f"--run_dir=bad{flags[0]}", *QUICK, *flags], folder)
    assert done.code == 2, done.err
    assert re.search(message, done.err), done.err


@pytest.mark.slow
def test_two_replicas_do_what_one_device_does(folder: Path) -> None:
    """A Bayesian and a shrunk epoch; with two replicas stopped and resumed between them."""
    common = [*SHRINKING, "--pretrain_epochs=0", "--epochs=1", "--bits=rule"]
    replicas = ["--strategy=mirrored", "--replicas=2", *common]
    # One run with two devices in each process: TensorFlow would mix up the sums over replicas of two strategies.
    bad, stopped = run_many(
        "compress_network.py",
        [
            ["--run_dir=odd", *replicas, "--batch_size=63"],
            ["--run_dir=replicas", *replicas, "--max_seconds=0"],
        ],
        folder,
    )
    two, one = run_many(
        "compress_network.py", [["--run_dir=replicas", *replicas, "--resume"], ["--run_dir=single", *common]], folder
    )
    assert bad.code == 2
    assert "--batch_size must be a multiple of the 2 replicas, got 63" in bad.err
    assert "stopped by max_seconds after step 1" in stopped.err
    assert (two.code, one.code) == (0, 0), two.err + one.err
    lines = [(folder / name / "scalars.jsonl").read_text().splitlines() for name in ("replicas", "single")]
    assert len(lines[0]) == len(lines[1]) == 2
    for of_two, of_one in (map(json.loads, pair) for pair in zip(*lines, strict=True)):
        assert of_two == pytest.approx(of_one, rel=1e-5)
    assert result_of(folder, "replicas")["architecture"] == result_of(folder, "single")["architecture"]
    assert sum(result_of(folder, "single")["kept_weights"]) < result_of(folder, "single")["original_weights"]


@pytest.mark.slow
def test_sparse_variational_dropout_of_single_weights(folder: Path) -> None:
    arguments = ["--run_dir=svd", "--prior=svd", "--kl=exact", "--network=lenet300", "--std_cap=0.2", "--bits=rule"]
    done = run("compress_network.py", [*arguments, "--tune_steps=3", *QUICK], folder)
    assert done.code == 0, done.err
    result = result_of(folder, "svd")
    columns = [*result["architecture"][1:], 10]
    words = sum(2 * n + c + 1 for n, c in zip(result["kept_weights"], columns, strict=True))
    pruning = result["rates_as_in_paper"]["rule"]["pruning"]
    assert pruning == pytest.approx(result["original_weights"] / words)
    assert (folder / "svd" / "plots" / "inputs.png").is_file()


@pytest.mark.slow
def test_vgg_and_exports(folder: Path) -> None:
    """The VGG network with 1/64 of its maps on a few images, and every file that --export_dir promises."""
    arguments = ["--run_dir=vgg", "--network=vgg", "--vgg_divisor=64", "--data=tiny.npz", "--epochs=1", "--noprogress"]
    arguments += ["--prior=ghs", "--batch_size=8", "--codebooks=2", "--export_dir=exported"]
    done = run("compress_network.py", arguments, folder)
    assert done.code == 0, done.err
    assert len(result_of(folder, "vgg")["architecture"]) == 15
    assert {path.name for path in (folder / "exported").iterdir()} == {
        "saved_model",
        "float32.tflite",
        "float16.tflite",
        "int8.tflite",
        "weights.npz",
        "network.keras",
    }

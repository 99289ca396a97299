"""`scripts/train_ebp.py` on tiny data: what it prints and leaves behind, that it goes on, and its errors."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from ebp import InputCoding, PackedNetwork
from gpflow_deep_base.seeds import numpy_rng
from gpflow_deep_base.text import aligned, within
from gpflow_deep_runs.cli.flags import named_flags, parse, text
from scripts.train_ebp import Flags, main, metrics, note, table, verdict
from tests.scripts.running import Finished, called, command, environment, lines_of, result_of
from tests.terminal import check_width

SMALL = ["--hidden=6", "--num_folds=3", "--noprogress"]
BINARY = ["--data=sick.csv", "--target=sick"]
ALL = [*BINARY, "--weights=real,binary,ternary", "--num_seeds=2", "--export=all.ebp", *SMALL]

ERRORS: list[tuple[list[str], str]] = [
    ([*BINARY, "--weights="], "weights may list real, .* got nothing"),
    ([*BINARY, "--num_seeds=0"], "num_seeds must be at least 1, got 0"),
    ([*BINARY, "--num_folds=1"], "--num_folds must be at least 2, got 1"),
    ([*BINARY, "--num_folds=91"], "number of folds must be from 2 to 90"),
    ([*BINARY, "--max_folds=0"], "--max_folds must be at least 1, got 0"),
    ([*BINARY, "--softmax"], "softmax needs more than two classes"),
    ([*BINARY, "--weights=real", "--export=x.ebp"], "export writes a network of binary weights"),
    ([*BINARY, "--input_coding=raw", "--export=x.ebp"], "input_coding other than raw"),
    ([*BINARY, "--export=."], "export must be a file, got the folder"),
    ([*BINARY, "--input_coding=log"], r"--input_coding=log: value should be one of <auto\|raw\|"),
    (["--data=line.npz"], "'y' of 'line' is a number, and this script classifies; give --task"),
    (["--data=missing.csv", "--target=sick", "--missing=error"], "missing values in 'a' \\(1"),
    (["--data=nothing.csv", "--target=sick"], "there is none at nothing.csv"),
    (["--dataset=no_such_data"], "--dataset must be one of amazon_.*wine.*got 'no_such_data'"),
    (["--dataset=reuters_i6"], "needs text/reuters_i6.npz, and no --data_dir was given"),
    (["--dataset=mnist"], "data set 'mnist' needs .*--data_dir"),
    (["--data=bare.npz"], "bare.npz must hold labels beside its matrix"),
    (["--data=docs.jsonl", "--target=kind"], "must have 'kind' in every line, but line 1 has none"),
    ([*BINARY, "--ngrams=2"], "--ngrams is for documents and sparse matrices of your own"),
    (["--dataset=reuters_i6", "--labels=y.txt"], "--labels is for documents and sparse matrices of your own"),
    (["--target=price"], "--target describes your own table; give it with --data"),
    ([*BINARY, "--resume"], "holds no run to resume"),
]

RESULTS: dict[str, dict[str, Any]] = {
    "real D": {
        "last_percent": 20.0,
        "last_standard_error": 0.0,
        "errors_percent": [[[10.0, 20.0]], [[14.0, 20.0]]],
        "seconds_per_epoch": 0.126,
    },
    "real P": {
        "last_percent": 3.5,
        "last_standard_error": None,
        "errors_percent": [[[5.0, 3.5]]],
        "seconds_per_epoch": 2.0,
        "log_loss_nats": 0.2,
        "calibration_error_percent": 5.0,
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of two and of three classes, of which the first decides by column a, with 90 rows."""
    folder = tmp_path_factory.mktemp("train")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4))
    sick = pd.DataFrame(x, columns=list("abcd")).assign(sick=np.where(x[:, 0] > 0.1, "yes", "no"))
    sick.to_csv(folder / "sick.csv", index=False)
    sick.assign(a=np.where(np.arange(90) == 7, np.nan, x[:, 0])).to_csv(folder / "missing.csv", index=False)
    kinds = np.array(["ape", "bee", "cow"])[np.digitize(x[:, 0], [-0.5, 0.5])]
    sick.assign(sick=kinds).to_parquet(folder / "kinds.parquet", index=False)
    np.savez(folder / "line.npz", X=x, y=x[:, 0] + x[:, 1])
    scipy.sparse.save_npz(folder / "bare.npz", scipy.sparse.csr_matrix(np.abs(x)))
    (folder / "docs.jsonl").write_text('{"text": "a word", "label": 1}\n')
    return folder


def call(folder: Path, name: str, *arguments: str) -> Finished:
    """The script, called in this process and in `folder`, with --run_dir=`name`."""
    return called(main, "train_ebp.py", folder, [f"--run_dir={name}", *arguments])


@pytest.fixture(scope="module")
def everything(folder: Path) -> Finished:
    return call(folder, "all", *ALL)


def test_all_methods(folder: Path, everything: Finished) -> None:
    assert (everything.code, everything.err) == (0, "")
    result = result_of(folder, "all")
    networks = [f"{weights} {output}" for weights in ("real", "binary", "ternary") for output in "DP"]
    assert list(result["models"]) == networks
    assert (result["dataset"], result["rows"], result["num_folds"], result["seeds"]) == ("sick", 90, 3, [0, 1])
    assert (result["layer_sizes"], result["class_names"], result["input_coding"]) == (
        [4, 6, 1],
        ["no", "yes"],
        "zscore",
    )
    for name, model in result["models"].items():
        errors = np.array(model["errors_percent"])
        assert errors.shape == (2, 3, 3), name  # seeds, folds, epochs
        assert np.all(np.abs(errors * 0.3 - np.rint(errors * 0.3)) < 1e-9)  # of 30 rows each
        assert errors[:, :, -1].mean() < 40  # chance is about 50


def test_what_is_printed_is_what_is_stored(folder: Path, everything: Finished) -> None:
    model = result_of(folder, "all")["models"]["real D"]
    cell = f"{model['last_percent']:.2f} ± {model['last_standard_error']:.2f}"
    assert re.search(rf"^EBP real D +{cell} ", everything.out, re.MULTILINE), everything.out
    for line in (r"mean ± standard error over seeds", r"^all.ebp: \d+ bytes, "):
        assert re.search(line, everything.out, re.MULTILINE), line


def test_what_is_logged_is_what_is_stored(folder: Path, everything: Finished) -> None:
    assert everything.code == 0
    lines, models = lines_of(folder, "all"), result_of(folder, "all")["models"]
    assert [line["step"] for line in lines] == list(range(1, 2 * 3 * 3 * 3 + 1))
    epochs = [line for line in lines if "binary/seed_1_fold_2/test/error_p_percent" in line]
    logged = [line["binary/seed_1_fold_2/test/error_p_percent"] for line in epochs]
    assert logged == models["binary P"]["errors_percent"][1][2]
    tags = set().union(*lines)
    some = {"test/error_d_percent", "train/log_evidence_nats", "layer_1/entropy_nats", "layer_2/decided_percent"}
    assert {f"binary/seed_0_fold_0/{tag}" for tag in some} <= tags
    assert "real/seed_1_fold_2/test/error_p_percent" in tags
    units = [json.loads(line) for line in (folder / "all" / "units.jsonl").read_text().splitlines()]
    assert len(units) == len(lines)
    one = next(u for u in units if (u["method"], u["seed"], u["fold"], u.get("epoch")) == ("binary", 1, 2, 0))
    assert one["errors_percent"]["P"] == logged[0]
    assert one["log_loss_nats"] == epochs[0]["binary/seed_1_fold_2/test/log_loss_nats"]
    assert (folder / "all" / "plots" / "errors.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "arguments", "models", "sizes"),
    [
        (
            "softmax",
            ["--data=kinds.parquet", "--target=sick", "--epochs=2", "--softmax", "--max_folds=2", *SMALL],
            ["binary D", "binary P"],
            [4, 6, 3],
        ),
        (
            "signs",
            [*BINARY, "--input_coding=sign", "--num_votes=3", "--export=signs.ebp", "--hidden=5,4", *SMALL[1:]],
            ["binary D", "binary P", "binary 3 votes"],
            [4, 5, 4, 1],
        ),
        ("linear", [*BINARY, "--hidden=", "--dtype=float64", *SMALL[1:]], ["binary D", "binary P"], [4, 1]),
    ],
)
def test_other_runs(name: str, arguments: list[str], models: list[str], sizes: list[int], folder: Path) -> None:
    done = call(folder, name, *arguments)
    assert (done.code, done.err) == (0, "")
    result = result_of(folder, name)
    assert list(result["models"]) == models
    assert result["layer_sizes"] == sizes
    assert all(np.all(np.isfinite(model["errors_percent"])) for model in result["models"].values())
    if name == "signs":
        voting = PackedNetwork.load(folder / "signs.ebp")
        assert (voting.num_networks, voting.layer_sizes) == (3, (4, 5, 4, 1))


def test_missing_values_are_put_in_by_the_training_rows_of_each_fold(folder: Path) -> None:
    """Kept are the mean and the coding of the first fold, as the coding is."""
    flags = ["--data=missing.csv", "--target=sick", "--missing=impute", "--epochs=1", *SMALL]
    done = call(folder, "missing", *flags)
    assert done.code == 0, done.err
    assert "a       number   1 missing  a, a=missing" in done.out
    train = np.concatenate(np.array_split(numpy_rng(0, "folds/90").permutation(90), 3)[1:])
    known = pd.read_csv(folder / "missing.csv")["a"][train].dropna()
    kept = json.loads((folder / "missing" / "columns.json").read_text())
    assert kept["fills"][0] == pytest.approx(known.mean(), rel=1e-12)
    filled = pd.read_csv(folder / "missing.csv")["a"][train].fillna(known.mean())
    coding = InputCoding.from_json(json.loads((folder / "missing" / "coding.json").read_text()))
    assert coding.mean[0] == pytest.approx(filled.mean(), rel=1e-12)


def test_an_own_file_is_no_known_set(folder: Path) -> None:
    """Whatever its name: nothing is known of its columns."""
    (folder / "mnist.csv").write_bytes((folder / "sick.csv").read_bytes())
    done = call(folder, "own_mnist", "--data=mnist.csv", "--target=sick", "--hidden=", "--epochs=1", *SMALL[1:])
    assert done.code == 0, done.err
    result = result_of(folder, "own_mnist")
    assert (result["dataset"], result["input_coding"]) == ("mnist", "zscore")


def test_a_known_data_set_is_the_default(folder: Path) -> None:
    """Its rows are shuffled before they are divided, as they may be sorted."""
    arguments = ["--hidden=", "--epochs=1", "--max_folds=1", "--num_folds=5", "--export=default.ebp", "--noprogress"]
    assert call(folder, "default", *arguments).code == 0
    result = result_of(folder, "default")
    assert (result["dataset"], result["rows"], result["num_folds"]) == ("breast_cancer", 569, 1)
    assert result["models"]["binary P"]["last_percent"] < 12  # the smaller class has 37 % of the rows


@pytest.mark.parametrize(("arguments", "message"), ERRORS, ids=[" ".join(arguments) for arguments, _ in ERRORS])
def test_errors_name_the_flag_and_leave_nothing(arguments: list[str], message: str, folder: Path) -> None:
    before = set(folder.iterdir())
    done = call(folder, "error", *arguments)
    assert done.code == 2, done.out + done.err
    assert re.fullmatch(rf"train_ebp\.py: error: .*{message}.*\n", done.err), done.err
    assert set(folder.iterdir()) == before


def test_resuming_a_finished_run_changes_nothing(folder: Path, everything: Finished) -> None:
    """The same table again, and no step twice in the logs."""
    before = lines_of(folder, "all")
    again = call(folder, "all", *ALL, "--resume")
    assert again.code == 0, again.err
    pattern = re.compile(r"^EBP.*$", re.MULTILINE)
    assert pattern.findall(again.out) == pattern.findall(everything.out)
    assert lines_of(folder, "all") == before


def test_a_stopped_run_goes_on_to_the_same_bits(folder: Path) -> None:
    """Stopped within each fold and kind of weights."""
    arguments = [*BINARY, "--weights=binary,real", "--epochs=2", "--max_folds=2", *SMALL]
    whole = call(folder, "whole", "--export=whole.ebp", *arguments)
    assert whole.code == 0, whole.err
    parts = ["--export=parts.ebp", *arguments]
    for step in range(1, 8):
        done = call(folder, "parts", *parts, "--max_seconds=0", *(["--resume"] if step > 1 else []))
        assert (done.code, f"by max_seconds after step {step};" in done.err) == (0, True), done.err
    assert call(folder, "parts", *parts, "--resume").code == 0
    assert lines_of(folder, "parts") == lines_of(folder, "whole")
    assert (folder / "parts.ebp").read_bytes() == (folder / "whole.ebp").read_bytes()
    errors = [
        {name: model["errors_percent"] for name, model in result_of(folder, run)["models"].items()}
        for run in ("whole", "parts")
    ]
    assert errors[0] == errors[1]


@pytest.mark.slow
@pytest.mark.ci
def test_ctrl_c_finishes_the_epoch_and_saves(folder: Path) -> None:
    arguments = ["--run_dir=stopped", *BINARY, "--epochs=4", "--num_seeds=2000", *SMALL]
    scalars = folder / "stopped" / "scalars.jsonl"
    with subprocess.Popen(
        command("train_ebp.py", arguments), cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None and not (scalars.exists() and scalars.stat().st_size > 0):
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130, err
    match = re.search(r"stopped by SIGINT after step (\d+); continue it with --resume", err)
    assert match, err
    assert len(lines_of(folder, "stopped")) == int(match[1])
    done = call(folder, "stopped", *arguments[1:], "--resume", "--max_seconds=0")
    assert f"by max_seconds after step {int(match[1]) + 1};" in done.err


def test_flags_are_those_of_the_python_interface() -> None:
    """What follows from others is no flag, and stored flags make the same run again."""
    names = {flag.name for flag in named_flags(Flags)}
    assert {
        "weights",
        "num_seeds",
        "num_folds",
        "num_votes",
        "hidden",
        "dtype",
        "export",
        "checkpoint_seconds",
    } <= names
    assert names.isdisjoint({"num_steps", "log_every", "eval_every", "checkpoint_every", "seeds", "folds", "strategy"})
    flags = parse(Flags, ["--run_dir=x", "--hidden=", "--weights=real,ternary", "--softmax", "--seed=7"])
    assert (flags.networks.hidden, flags.networks.weights, flags.run.seed) == ((), ("real", "ternary"), 7)
    assert parse(Flags, ["--run_dir=x", *text(flags).splitlines()]) == flags


def test_table() -> None:
    """A mean of two seeds has a standard error; a single number has none."""
    assert table(RESULTS) == [
        ["", "test error", "seconds"],
        ["EBP real D", "20.00 ± 0.00", "0.13"],
        ["EBP real P", "3.50", "2.00"],
    ]
    check_width(within("\n".join([aligned(table(RESULTS)), note(RESULTS)])))


def test_what_is_said_of_results() -> None:
    assert "over seeds" in note(RESULTS)
    assert "over folds" in note({"real P": RESULTS["real P"]})
    assert verdict(RESULTS) == "EBP real P 3.50 % errors."
    assert metrics(RESULTS) == {"log_density_nats": -0.2, "error_percent": 3.5, "calibration_error": 0.05}

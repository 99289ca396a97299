"""`scripts/train_darn.py` on tiny data: what a run reports and leaves behind, that it goes on, and its errors."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from darn import DARN, DARNConfig, NoiseConfig, Trainer, TrainingConfig, load_darn, load_density, report
from darn.model.description_length import description_length, exact_log_likelihood
from darn.more.mixture import drawn, log_prob
from darn.train.rivals import given
from darn.train.training import MAX_BLOCK
from gpflow_deep_runs.cli.flags import parse, text
from gpflow_deep_runs.data.supply import Minibatches
from gpflow_deep_runs.run import Every, Seeds, fit, lowest
from scripts.train_darn import Flags, main
from tests.scripts.running import Finished, called, lines_of, result_of, run, workers

SMALL = [
    "--batch_size=20",
    "--noprogress",
    "--log_every=10",
    "--eval_every=20",
    "--checkpoint_every=20",
    "--final_samples=2",
    "--is_samples=20",
    "--is_repeats=2",
]
TINY = ["--data=patterns.csv", "--hidden=3", "--units=4", *SMALL]
WHOLE = [*TINY, "--visible_conditional=linear", "--optimizer=rmsprop", "--average=0.9", "--half_life=30"]
STOPPING = ["--data=noise.npz", "--hidden=3", *SMALL, "--num_steps=4000", "--learning_rate=0.1", "--patience=2"]


@pytest.fixture(autouse=True)
def little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where networks are tried beside the DARN, it is one that takes a moment."""
    monkeypatch.setattr("darn.train.density_choice._NETWORK_WORK", 1e9)
    monkeypatch.setattr("darn.train.density_choice._ORDERS_WORK", 0.0)


ERRORS: list[tuple[list[str], str]] = [
    (["--data=missing.csv", "--missing=error"], "missing values in"),
    (["--dataset=no_such_data"], "no_such_data"),
    (["--dataset=adult"], "adult.*--data_dir"),
    ([*TINY, "--dataset=digits"], "give --dataset or --data, not both"),
    ([*TINY, "--hidden=17", "--exact=yes"], "exact=yes needs at most 16 stochastic units, got 17"),
    ([*TINY, "--conditional_units=0"], "conditional_units must be a whole number, at least 1, got 0"),
    ([*TINY, "--orders=0"], "orders must be a whole number, at least 1, got 0"),
    ([*TINY, "--prior=other"], "--prior=other: value should be one of <factorial|linear|nade|eonade|made>"),
    ([*TINY, "--hidden=2,2", "--estimator=disarm"], "needs one stochastic layer"),
    ([*TINY, "--use_local"], "layers of images need images, but the rows of patterns"),
    ([*TINY, "--visible_conditional=pixelcnn"], "layers of images need images"),
    (
        ["--hidden=8", "--use_local", "--local_period=0"],
        "period of local layers must be a whole number, at least 1, got 0",
    ),
    (["--data=patterns.csv", "--exact=yes"], "--hidden must be given with .* or --exact=yes"),
    (
        ["--hidden=8", "--dataset=adult", "--observations=intensities"],
        "--dataset must have the view 'grey' here, as digits, mnist",
    ),
    ([*TINY, "--patience=-1"], "--patience must be at least 0, got -1"),
    ([*TINY, "--eval_rows=0"], "--eval_rows must be at least 1, got 0"),
    ([*TINY, "--batch_size=0"], "--batch_size must be between 1 and"),
    ([*TINY, "--resume"], "holds no run to resume"),
    ([*TINY, "--strategy=multi_worker"], "needs the environment variable TF_CONFIG"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("darn")
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 2, (2, 8))[rng.integers(0, 2, 200)] ^ (rng.uniform(size=(200, 8)) < 0.1)
    pd.DataFrame(patterns, columns=[f"x{i}" for i in range(8)]).to_csv(folder / "patterns.csv", index=False)
    holes = np.where(rng.uniform(size=patterns.shape) < 0.1, np.nan, patterns)
    pd.DataFrame(holes, columns=list("abcdefgh")).to_csv(folder / "missing.csv", index=False)
    noise = rng.integers(0, 2, (60, 10)).astype(np.uint8)
    np.savez(folder / "noise.npz", train=noise[:30], valid=noise[30:44], test=noise[44:])
    return folder


def call(folder: Path, name: str, *arguments: str) -> Finished:
    """The script, called in this process and in `folder`, with --run_dir=`name`."""
    return called(main, "train_darn.py", folder, [f"--run_dir={name}", *arguments])


def test_truths_levels_and_missing_values(folder: Path) -> None:
    rng = np.random.default_rng(1)
    shop = pd.DataFrame({"paid": rng.choice(["yes", "no"], 150), "kind": rng.choice(["ale", "bun", "cod"], 150)})
    shop = shop.mask(rng.random(shop.shape) < 0.1).assign(price=rng.normal(size=150))
    shop.to_csv(folder / "shop.csv", index=False)
    flags = ["--data=shop.csv", "--hidden=3", "--num_steps=2", *SMALL]
    with_price = call(folder, "with_price", "--bins=4", *flags)
    assert with_price.code == 0, with_price.err
    assert load_darn(folder / "with_price" / "darn.npz").config.visible == 6 + 4
    done = call(folder, "shop", "--ignore=price", *flags)
    assert done.code == 0, done.err
    assert re.search(r"^kind +category +3 levels: ale, bun, cod; \d+ (missing)? *kind=ale ... ", done.out, re.MULTILINE)
    assert load_darn(folder / "shop" / "darn.npz").config.visible == 6
    assert json.loads((folder / "shop" / "columns.json").read_text())["missing"] == "impute"


@pytest.fixture(scope="module")
def whole(folder: Path) -> Finished:
    return call(folder, "whole", "--num_steps=40", *WHOLE)


@pytest.fixture(scope="module")
def stopped(folder: Path) -> Finished:
    return call(folder, "stopped", *STOPPING)


def variables_of(path: Path) -> list[np.ndarray]:
    return [variable.numpy() for variable in load_darn(path).variables]


def test_bit_planes(folder: Path) -> None:
    flags = ["--dataset=digits", "--bit_planes=4", "--hidden=2", "--num_steps=2", "--eval_rows=5", *SMALL]
    done = call(folder, "planes", *flags)
    assert done.code == 0, done.err
    assert load_darn(folder / "planes" / "darn.npz").config.visible == 256


def test_the_best_parameters_are_reported_and_not_the_last(folder: Path, stopped: Finished) -> None:
    """A DARN of noise overfits: validation gets worse, and what is reported is from before that."""
    assert stopped.code == 0, stopped.err
    result, lines = result_of(folder, "stopped"), lines_of(folder, "stopped")
    scores = {line["step"]: line["valid/description_length_nats"] for line in lines if line["step"] % 20 == 0}
    assert result["stopped_early"]
    assert result["step"] == min(scores, key=lambda step: scores[step])
    assert result["steps"] == lines[-1]["step"] == result["step"] + 40 < 4000
    model, seeds = load_darn(folder / "stopped" / "darn.npz"), Seeds(0)
    valid = np.load(folder / "noise.npz")["valid"]
    lengths = description_length(model, valid, seed=seeds("eval/valid")).total
    assert lengths.mean() == pytest.approx(scores[result["step"]], rel=1e-6)
    assert f"reported: the best on validation, step {result['step']} of {result['steps']}, stopped early" in stopped.out


def test_numbers_are_of_the_rows_they_name(folder: Path, stopped: Finished) -> None:
    assert stopped.code == 0, stopped.err
    result, model = result_of(folder, "stopped"), load_darn(folder / "stopped" / "darn.npz")
    noise = np.load(folder / "noise.npz")
    for part in ("valid", "test"):
        log_p = exact_log_likelihood(model, noise[part])
        assert result[f"{part}/exact_nll_nats"] == pytest.approx(-log_p.mean(), rel=1e-6)
    for part in ("train", "valid", "test"):
        lengths = description_length(model, noise[part], seed=Seeds(0)(f"final/{part}"), num_samples=2)
        assert result[f"{part}/description_length_nats"] == pytest.approx(lengths.total.mean(), rel=1e-6)
        bits = [result[f"{part}/{name}_bits"] for name in ("hidden", "bits_back", "visible")]
        assert sum(bits) == pytest.approx(result[f"{part}/description_length_bits"])
        assert sum(bits) * np.log(2) == pytest.approx(result[f"{part}/description_length_nats"])
    assert result["rows"] == {"train": 30, "valid": 14, "test": 16}
    assert result["model"] == json.loads(model.config.to_json())
    assert f"test negative log-likelihood: {result['test/exact_nll_nats']:.3f} nats, exact" in stopped.out
    table = next(line.split() for line in stopped.out.splitlines() if line.startswith("test "))
    assert table[1] == f"{result['test/description_length_nats']:.3f}"
    assert table[2] == f"{result['test/description_length_bits']:.3f}"


def test_scalars_are_logged_at_their_steps(folder: Path, whole: Finished) -> None:
    assert whole.code == 0, whole.err
    lines = lines_of(folder, "whole")
    assert [line["step"] for line in lines] == [10, 20, 30, 40]
    for line in lines:
        assert {"train/batch_hidden_bits", "train/batch_visible_bits", "train/activity"} <= set(line)
        tags = {"valid/description_length_nats", "valid/bits_back_bits", "estimator/relative_std"}
        assert tags <= set(line) if line["step"] % 20 == 0 else not tags & set(line)
    assert any((folder / "whole" / "tensorboard").iterdir())
    assert (folder / "whole" / "plots" / "description_length.svg").stat().st_size > 1000


def test_what_is_reported_may_change_when_a_run_is_resumed(folder: Path, whole: Finished) -> None:
    """The report says beforehand what it is about to do."""
    assert call(folder, "reported", "--num_steps=20", *WHOLE).code == 0
    again = call(
        folder, "reported", "--resume", "--num_steps=20", *WHOLE, "--exact=no", "--is_repeats=3", "--is_rows=7"
    )
    assert again.code == 0, again.err
    assert "final report: 20 importance samples x 3 for each of 7 rows" in again.out
    assert result_of(folder, "reported")["is_rows"] == 7
    other = call(folder, "reported", "--resume", "--num_steps=20", *WHOLE, "--learning_rate=0.123")
    assert other.code == 2
    assert "--resume needs the flags of the run" in other.err


def test_the_loop_alone_gives_the_numbers_of_the_run(folder: Path, stopped: Finished) -> None:
    """What a notebook calls, without a folder."""
    assert stopped.code == 0, stopped.err
    seeds, noise = Seeds(0), np.load(folder / "noise.npz")
    flags = parse(Flags, ["--run_dir=none", *STOPPING])
    model = DARN(DARNConfig(10, (3,)), seed=seeds("init"), data=noise["train"])
    trainer = Trainer(model, TrainingConfig(learning_rate=0.1), num_data=30)
    minibatches, parts = Minibatches(30, 20, seeds), {part: noise[part] for part in ("train", "valid")}
    history: list[dict[str, Any]] = []
    kept: list[DARN] = []
    fitted = fit(
        lambda first, count: trainer.advance(noise["train"], minibatches(first, count), seeds("train")),
        num_steps=4000,
        every=Every(log=10, evaluate=20),
        scalars=report.training_scalars,
        evaluate=lambda step: report.evaluate(trainer, parts, seeds),
        rule=lowest("valid/description_length_nats"),
        patience=2,
        keep=lambda: kept.append(trainer.copied()),
        log=lambda step, line: history.append({"step": step, **line}),
        steps_per_call=MAX_BLOCK,
    )
    logged = lines_of(folder, "stopped")
    assert [line["step"] for line in history] == [line["step"] for line in logged]
    for line, expected in zip(history, logged, strict=True):
        assert line == pytest.approx(expected, rel=1e-5)
    assert fitted.best.step == result_of(folder, "stopped")["step"]
    found = report.final(kept[-1], {**parts, "test": noise["test"]}, seeds, flags.final)
    for name in ("test/exact_nll_nats", "valid/description_length_bits"):
        assert found[name] == pytest.approx(result_of(folder, "stopped")[name], rel=1e-5)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize(
    "flags",
    [
        ["--visible_conditional=pixelcnn", "--pixelcnn_layers=2", "--pixelcnn_filters=2", "--pixelcnn_maps=3"],
        ["--use_local", "--local_stochastic", "--local_kernels=3,4", "--local_strides=1,2", "--local_filters=2,3"],
    ],
)
def test_layers_of_images_go_on_where_they_stopped(folder: Path, tmp_path: Path, flags: list[str]) -> None:
    """A PixelCNN, and the paper's stack of stochastic local layers: in one go and in two, the same numbers."""
    more = ["--hidden=5", "--exact=no", "--is_rows=10", "--eval_rows=50", "--checkpoint_every=10", *flags, *SMALL]
    whole = call(folder, str(tmp_path / "whole"), "--num_steps=20", *more)
    assert whole.code == 0, whole.err
    for steps in (["--num_steps=10"], ["--num_steps=20", "--resume"]):
        part = call(folder, str(tmp_path / "parts"), *steps, *more)
        assert part.code == 0, part.err
    results = [result_of(tmp_path, name) for name in ("whole", "parts")]
    assert results[0]["model"]["hidden"] == ([5] if "pixel" in flags[0] else [128, 48, 5])
    numbers = [{name: value for name, value in found.items() if name.startswith("test/")} for found in results]
    assert numbers[0] == numbers[1]
    assert (tmp_path / "whole" / "plots" / "filters.png").exists() == ("pixel" in flags[0])


def test_images_get_samples_and_filters(folder: Path) -> None:
    done = call(
        folder,
        "images",
        "--num_steps=10",
        "--hidden=20",
        "--visible_conditional=factorial",
        "--sparsity=0.1",
        "--is_rows=50",
        *SMALL,
    )
    assert done.code == 0, done.err
    for name in ("samples.png", "filters.png", "nearest_training_images.png", "description_length.svg"):
        assert (folder / "images" / "plots" / name).stat().st_size > 200
    result = result_of(folder, "images")
    assert result["is_rows"] == 50
    low, high = result["test/is_nll_95_interval"]
    assert low <= result["test/is_nll_nats"] <= high
    assert result["multiplications_per_sample"] == pytest.approx(result["active_units_per_sample"] * 84)


def test_a_fully_visible_model_and_one_of_grey_levels(folder: Path) -> None:
    visible = call(folder, "visible", "--data=patterns.csv", "--num_steps=10", "--hidden=", *SMALL)
    assert visible.code == 0, visible.err
    assert result_of(folder, "visible")["test/hidden_bits"] == 0
    local = ["--local_kernels=4", "--local_strides=2", "--local_filters=2", "--local_visible_kernel=3", "--is_rows=20"]
    local += ["--local_visible_period=2"]
    grey = ["--observations=intensities", "--visible_conditional=local", "--eval_rows=50", "--local_period=1", *local]
    done = call(folder, "grey", "--num_steps=2", "--hidden=4", "--exact=no", *grey, *SMALL)
    assert done.code == 0, done.err
    model = result_of(folder, "grey")["model"]
    assert model["local"]["image_shape"] == [8, 8]
    assert (model["local"]["kernels"], model["local"]["visible_kernel"]) == ([4], 3)
    assert not (folder / "grey" / "plots" / "filters.png").exists()


def test_what_is_not_given_is_chosen_and_kept(folder: Path) -> None:
    """Nothing but the data is needed; here the choice is among few, for a short time."""
    short = ["--candidates=2", "--noneighbours", "--nofalling", "--search_steps=50", "--units=4", "--weight_decay=0"]
    flags = ["--data=patterns.csv", *short, *[flag for flag in SMALL if "eval_every" not in flag]]
    done = call(folder, "chosen", "--num_steps=50", *flags)
    assert done.code == 0, done.err
    result = result_of(folder, "chosen")
    choice = result["choice"]
    assert choice == json.loads((folder / "chosen" / "choice.json").read_text())
    assert result["model"] == choice["model"]
    assert result["model"]["hidden"] == [choice["chosen"]["hidden"]]
    assert result["model"]["visible_conditional"] == "linear"
    assert len(choice["rejected"]) == 1
    assert choice["chosen"]["valid_nats"] <= choice["rejected"][0]["valid_nats"]
    assert [line["step"] for line in lines_of(folder, "chosen") if "valid/kl_bits" in line] == [25, 50]
    kl = result["test/kl_bits"]
    assert kl == pytest.approx(result["test/hidden_bits"] + result["test/bits_back_bits"])
    assert "stochastic and 4 deterministic units" in done.out
    assert log_prob(load_density(folder / "chosen" / "density.npz"), np.zeros([1, result["model"]["visible"]])) < 0
    names = [trial["name"].split(",")[0] for trial in result["candidates"]]
    assert {"tree of Chow and Liu", "L1 chain", "DARN"} <= {*names}
    assert result["density"] == result["candidates"][0]["name"]
    assert f"density.npz: {result['density']}: {result['test/density_nll_nats']:.3f}" in done.out
    again = call(folder, "chosen", "--num_steps=75", "--resume", *flags)
    assert again.code == 0, again.err
    assert "round 1" in done.out
    assert "round 1" not in again.out
    assert "L1 chain, columns rare ones first" in done.out.split("round 1")[0]
    assert "L1 chain, columns rare ones first" not in again.out.split("densities by the validation rows")[0]
    assert result_of(folder, "chosen")["choice"] == choice


def test_columns_of_a_category_are_one_variable_of_a_chain(folder: Path) -> None:
    """Bins of numbers, too; none of the densities has impossible rows."""
    rng = np.random.default_rng(1)
    kind = rng.choice(["ale", "bun", "cod"], 150)
    size = np.where(kind == "ale", "L", rng.choice(["S", "M"], 150))
    grams = 10 * rng.integers(1, 4, 150)
    pd.DataFrame({"kind": kind, "size": size, "grams": grams}).to_csv(folder / "sizes.csv", index=False)
    flags = ["--data=sizes.csv", "--candidates=1", "--noneighbours", "--nofalling", "--search_steps=25"]
    done = call(folder, "sizes", "--num_steps=25", *flags, *SMALL)
    assert done.code == 0, done.err
    assert "none of its samples is an impossible row\n" in done.out
    assert done.out.count("odd test row: ") == 3
    assert re.search(r"nats, (kind|size|grams).* = 1 fits the others least: ", done.out)
    for density in (load_density(folder / "sizes" / "density.npz"), load_darn(folder / "sizes" / "darn.npz")):
        rows = drawn(density, 2000, 0)
        np.testing.assert_array_equal(rows.reshape(2000, 3, 3).sum(axis=2), 1)
    names = [trial["name"] for trial in result_of(folder, "sizes")["candidates"]]
    assert sum(name.startswith("DARN") for name in names) == 1


def test_a_choice_with_other_conditionals_and_activations(folder: Path) -> None:
    """The rival without stochastic units has no prior, no units, and nothing of these."""
    flags = ["--data=patterns.csv", "--prior=made", "--conditional_units=5", "--activation=relu", "--estimator=disarm"]
    flags += ["--candidates=1", "--noneighbours", "--nofalling", "--search_steps=25", "--num_steps=25", *SMALL]
    done = call(folder, "others", *flags)
    assert done.code == 0, done.err
    result = result_of(folder, "others")
    assert (result["model"]["prior"], result["model"]["activation"]) == ("made", "relu")
    assert result["choice"]["without_stochastic_units"]["valid_nats"] > 0


def test_a_chosen_rate_that_falls_is_trained_with_until_it_is_0(folder: Path) -> None:
    short = ["--candidates=2", "--noneighbours", "--search_steps=50", "--units=4", "--weight_decay=0"]
    flags = ["--data=patterns.csv", *short, *[flag for flag in SMALL if "eval_every" not in flag]]
    done = call(folder, "falling", "--learning_rate=0.02", "--patience=1", *flags)
    assert done.code == 0, done.err
    result = result_of(folder, "falling")
    cosine = result["choice"]["training"]["cosine"]
    assert cosine == result["choice"]["chosen"]["cosine"] == 100  # the rows are still being learnt after 50 steps
    assert result["steps"] == cosine
    assert not result["stopped_early"]
    assert "falling to 0 at step 100" in done.out


def test_the_choice_has_a_limit(folder: Path) -> None:
    """--max_seconds interrupts it, and it goes on; --search_total_steps ends it with the best so far."""
    flags = ["--data=patterns.csv", "--units=4", "--weight_decay=0", "--num_steps=25", "--noneighbours"]
    flags += ["--architecture=darn", "--search_total_steps=1", *[flag for flag in SMALL if "eval_every" not in flag]]
    done = call(folder, "brief", "--max_seconds=0", *flags)
    assert done.code == 0, done.err
    assert "training was stopped by max_seconds after step 0; continue it with --resume" in done.err
    assert not (folder / "brief" / "choice.json").exists()
    again = call(folder, "brief", "--resume", *flags)
    assert again.code == 0, again.err
    assert "continuing the search" in again.out
    assert "the choice ended when its steps were spent" in again.out
    choice = result_of(folder, "brief")["choice"]
    assert choice["ended_by_search_total_steps"]
    assert choice["rejected"] == []
    assert choice["chosen"]["steps"] == choice["without_stochastic_units"]["steps"] == 25


def test_divergence_is_one_clear_error(folder: Path) -> None:
    done = call(folder, "diverged", "--num_steps=40", "--learning_rate=1e38", *TINY)
    assert done.code == 1
    assert re.search(r"finite after step \d+: training has diverged. Lower learning_rate", done.err)
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(("arguments", "message"), ERRORS, ids=lambda value: value if isinstance(value, str) else "")
def test_bad_input_is_one_clear_error_and_leaves_no_folder(folder: Path, arguments: list[str], message: str) -> None:
    done = call(folder, "error", *arguments)
    assert done.code == 2
    assert re.search(message, done.err), done.err
    assert "Traceback" not in done.err
    assert not (folder / "error").exists()


def test_flags_are_written_as_they_are_read() -> None:
    arguments = ["--run_dir=x", "--hidden=5,2", "--units=", "--local_kernels=4", "--weight_noise=graves", "--seed=3"]
    flags = parse(Flags, arguments)
    again = parse(Flags, ["--run_dir=x", *text(flags).split()])
    assert text(again) == text(flags)
    assert DARNConfig(4, **given(again.model.keywords)).hidden == (5, 2)
    assert again.local(image_shape=(8, 8), strides=(2,), filters=(3,)).kernels == (4,)
    assert TrainingConfig(**given(again.training.keywords)) == TrainingConfig(noise=NoiseConfig("graves"))


@pytest.mark.ci
@pytest.mark.slow
def test_devices_and_workers_share_the_work(folder: Path) -> None:
    """Two devices, and two processes that are started again, print what one device prints."""
    arguments = [*WHOLE, "--dtype=float64", "--weight_noise=graves", "--patience=2"]
    assert run("train_darn.py", ["--run_dir=one", "--num_steps=40", *arguments], folder).code == 0
    mirrored = run("train_darn.py", ["--run_dir=two", "--num_steps=40", "--strategy=mirrored", *arguments], folder)
    assert mirrored.code == 0, mirrored.err
    for steps, resume in ((20, []), (40, ["--resume"])):
        shared = ["--run_dir=workers", f"--num_steps={steps}", "--strategy=multi_worker", *arguments, *resume]
        with workers("train_darn.py", folder, shared) as both:
            for process in both:
                out, _ = process.communicate()
                assert process.returncode == 0, out
    one = lines_of(folder, "one")
    for name in ("two", "workers"):
        for line, expected in zip(lines_of(folder, name), one, strict=True):
            assert line == pytest.approx(expected, rel=1e-9, abs=1e-12)
    odd = run("train_darn.py", ["--run_dir=odd", "--strategy=mirrored", *arguments, "--batch_size=21"], folder)
    assert odd.code == 2
    assert "--batch_size must be a multiple of the 2 replicas, got 21" in odd.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], True),
        (["--nojit"], False),
        (["--hidden=8", "--visible_conditional=pixelcnn"], False),
        (["--hidden=8", "--use_local"], False),
        (["--hidden=8", "--strategy=mirrored"], False),
    ],
)
def test_steps_are_compiled_on_one_gpu(arguments: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = ["GPU"]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    assert parse(Flags, ["--run_dir=none", *arguments]).is_compiled is expected
    gpus.clear()
    assert not parse(Flags, ["--run_dir=none", *arguments]).is_compiled
    assert parse(Flags, ["--run_dir=none", "--jit"]).is_compiled

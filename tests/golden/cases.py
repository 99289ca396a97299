"""Short runs of every script by which two trees of this repository are compared; :mod:`tests.golden.compare` runs them.

A case is a list of calls in one folder with fixed seeds; with one thread a tree always gives the same bytes. The cases
of a script cover what it can do rather than what is sensible: options are joined as far as they go together.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["CASES", "Call", "Case"]


@dataclass(frozen=True)
class Call:
    """One call of a script; flags are separated by blanks, so none of them may hold one.

    :param script: its name without .py.
    :param command: a word before the flags, for scripts that take one.
    """

    script: str
    flags: str
    command: str = ""

    def arguments(self) -> list[str]:
        """What stands behind the name of the script on the command line."""
        return f"{self.command} {self.flags}".split()


@dataclass(frozen=True)
class Case:
    """Calls in one folder, one after the other.

    :param name: begins with the system: dgp, rbm, darn, ebp or compress.
    :param covers: what the case is there for.
    :param calls: the calls; paths in their flags are relative to the folder.
    :param make: writes the data of the case to the folder.
    """

    name: str
    covers: str
    calls: tuple[Call, ...]
    make: Callable[[Path], None] | None = None

    def definition(self) -> str:
        """A text that is another one when other things are computed."""
        calls = [f"{call.script} {' '.join(call.arguments())}" for call in self.calls]
        return "\n".join([*calls, "" if self.make is None else inspect.getsource(self.make)])


def write_houses(folder: Path) -> None:
    """A regression on numbers and a category; and rows to predict, some without the target."""
    rng = np.random.default_rng(0)
    x, kind = rng.normal(size=(400, 3)), rng.choice(["flat", "house", "hut"], 400)
    price = 100 + 40 * np.sin(x[:, 0]) + 10 * x[:, 1] * (kind == "hut") + 3 * rng.normal(size=400)
    table = pd.DataFrame(x, columns=["size", "age", "distance"]).assign(kind=kind, price=price)
    table.iloc[:300].to_csv(folder / "houses.csv", index=False)
    table.iloc[300:].to_csv(folder / "more.csv", index=False)
    table.iloc[300:].drop(columns="price").to_csv(folder / "unknown.csv", index=False)


def write_kinds(folder: Path) -> None:
    """Three classes by two of four inputs; and rows to predict."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 4))
    kind = np.array(["ape", "bee", "cow"])[np.digitize(x[:, 0] + 0.3 * x[:, 1] ** 2, [-0.4, 0.6])]
    table = pd.DataFrame(x, columns=list("abcd")).assign(kind=kind)
    table.iloc[:240].to_csv(folder / "kinds.csv", index=False)
    table.iloc[240:].to_csv(folder / "more.csv", index=False)


def write_shards(folder: Path) -> None:
    """Three files of a regression."""
    rng = np.random.default_rng(2)
    (folder / "shards").mkdir()
    for number in range(3):
        x = rng.normal(size=(400, 2))
        table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.sin(x[:, 0]) + 0.1 * rng.normal(size=400)})
        table.to_parquet(folder / "shards" / f"part{number}.parquet", row_group_size=60)


def write_patterns(folder: Path) -> None:
    """Two patterns of eight bits with noise, and 24 rows of nothing but noise."""
    rng = np.random.default_rng(3)
    patterns = rng.integers(0, 2, (2, 8))[rng.integers(0, 2, 300)] ^ (rng.uniform(size=(300, 8)) < 0.1)
    pd.DataFrame(patterns, columns=[f"x{i}" for i in range(8)]).to_csv(folder / "patterns.csv", index=False)
    noise = rng.integers(0, 2, (54, 8))
    np.savez(folder / "noise.npz", train=noise[:24], valid=noise[24:39], test=noise[39:])


def write_network(folder: Path) -> None:
    """An own network for the digits; its layers have names, as other trees number those of a resumed run anew."""
    import keras

    layers = [
        keras.layers.Conv2D(16, 3, activation="relu", kernel_initializer=keras.initializers.HeNormal(1), name="first"),
        keras.layers.MaxPooling2D(name="pooling"),
        keras.layers.Conv2D(16, 2, activation="relu", kernel_initializer=keras.initializers.HeNormal(2), name="second"),
        keras.layers.Flatten(name="flatten"),
        keras.layers.Dense(64, "relu", kernel_initializer=keras.initializers.HeNormal(3), name="third"),
        keras.layers.Dense(10, kernel_initializer=keras.initializers.HeNormal(4), name="last"),
    ]
    keras.Sequential([keras.Input([8, 8, 1]), *layers]).save(folder / "own.keras")


_DGP = "--run_dir=run --batch_size=100 --log_every=10 --num_predict_samples=10"
_SMALL_DGP = f"{_DGP} --num_layers=2 --num_inducing=20"
_HOUSES = f"{_SMALL_DGP} --data=houses.csv --target=price --compare=gp,linear --eval_every=20 --checkpoint_every=25"
_KINDS = f"{_SMALL_DGP} --data=kinds.csv --target=kind --num_steps=60 --preset=modern --natgrad --eval_every=20"
_KINDS += " --eval_rows=50"
_SHARDS = f"{_SMALL_DGP} --stream --data=shards/*.parquet --target=y --batch_size=40 --eval_every=25 --compare="
_SHARDS += " --shuffle_rows=200 --stream_sample=150 --test_fraction=0.2 --eval_rows=60"
_DGP_CASES = (
    Case(
        "dgp_resumed",
        "regression with a GP and a linear model beside it, in two pieces; predictions of own rows",
        (
            Call("train_dgp", f"{_HOUSES} --num_steps=40"),
            Call("train_dgp", f"{_HOUSES} --num_steps=70 --resume"),
            Call("predict_dgp", "--run_dir=run --data=more.csv --output=more_out.csv --num_predict_samples=7"),
            Call("predict_dgp", "--run_dir=run --data=unknown.csv --output=unknown_out.csv"),
        ),
        write_houses,
    ),
    Case(
        "dgp_modern",
        "the modern preset with natural gradients on three classes, own hidden width and kernels; predictions",
        (
            Call(
                "train_dgp",
                f"{_KINDS} --hidden_dim=3 --lengthscale=2 --kernel_variance=1.5 --likelihood=softmax",
            ),
            Call("predict_dgp", "--run_dir=run --data=more.csv --output=more_out.csv"),
        ),
        write_kinds,
    ),
    Case(
        "dgp_mirrored",
        "two replicas; binary classes, three layers, inputs beside them, natural gradients in the preset of the paper",
        (
            Call(
                "train_dgp",
                f"{_DGP} --dataset=breast_cancer --strategy=mirrored --replicas=2 --num_steps=30 --eval_every=20 "
                "--preset=paper2017 --natgrad --natgrad_gamma=0.02 --input_propagation --noise_variance=1e-3 "
                "--max_rows=300 --split=1 --precision=fast --valid_fraction=0.2 --num_layers=3 --num_inducing=15",
            ),
        ),
    ),
    Case(
        "dgp_stream",
        "a stream in two pieces",
        (
            Call("train_dgp", f"{_SHARDS} --num_steps=40"),
            Call("train_dgp", f"{_SHARDS} --num_steps=70 --resume"),
        ),
        write_shards,
    ),
    Case(
        "dgp_float32",
        "the flights with Student's t, float32, one lengthscale for all inputs, q(u), and no validation rows",
        (
            Call(
                "train_dgp",
                f"{_SMALL_DGP} --dataset=airline_nyc --max_rows=800 --num_steps=40 --eval_every=20 "
                "--preset=paper2017 --likelihood=studentt --noard --nowhiten --num_samples=2 --compare= "
                "--valid_fraction=0 --seed=3 --eval_rows=200 --dtype=float32",
            ),
        ),
    ),
)

_RBM = "--run_dir=run --final_ais_betas=200 --ais_betas=100 --ais_chains=20 --log_every=20"
_RBM_RESUMED = f"{_RBM} --adaptive --spawn_up_to=6 --exact_every=20 --ais_every=40 --eval_every=40 --eval_rows=200"
_RBM_RESUMED += " --checkpoint_every=100"
_PAPER = "--schedule=paper --target_chains=0 --nocentred --l2=0 --average=0"
_RBM_RESUMED += (
    f" --hidden=16 --num_temps=2 --num_chains=16 --num_track_chains=4 --learning_rate=1 {_PAPER} --patience=0"
)
_RBM_CASES = (
    Case(
        "rbm_resumed",
        "exact and AIS log Z at their own steps, an adaptive ladder that grows, tracking chains, in two pieces",
        (
            Call("track_rbm", f"{_RBM_RESUMED} --num_steps=200"),
            Call("track_rbm", f"{_RBM_RESUMED} --num_steps=260 --resume"),
        ),
    ),
    Case(
        "rbm_stopped",
        "early stopping with AIS where the tracked log Z is flagged",
        (
            Call(
                "track_rbm",
                f"{_RBM} --num_steps=3000 --eval_every=20 --batch_size=20 --nojit --dataset=digits --hidden=30 "
                f"--num_temps=5 --num_chains=10 --learning_rate=0.3 --patience=3 {_PAPER}",
            ),
        ),
    ),
    Case(
        "rbm_options",
        "own table, float64, falling rate, centred gradient, learned bias, the other generator",
        (
            Call(
                "track_rbm",
                f"{_RBM} --data=patterns.csv --num_steps=120 --eval_every=40 --batch_size=30 --centred --gibbs_steps=2 "
                "--bias=learned --generator=hash --seed=5 --nojit "
                "--hidden=6 --num_temps=5 --num_chains=6 --dtype=float64 --learning_rate=0.1 "
                f"--learning_rate_decay=50 {_PAPER} --centred --patience=0",
            ),
        ),
        write_patterns,
    ),
    Case(
        "rbm_untracked",
        "parallel tempering without a tracker",
        (
            Call(
                "track_rbm",
                "--run_dir=run --data=patterns.csv --num_steps=60 --eval_every=20 --log_every=20 --notrack "
                f"--final_ais_betas=0 --nojit --hidden=6 --num_temps=4 --num_chains=6 --learning_rate=0.1 {_PAPER}",
            ),
        ),
        write_patterns,
    ),
)

_DARN = "--run_dir=run --log_every=20 --final_samples=3 --is_repeats=2 --is_samples=20"
_DARN_RESUMED = f"{_DARN} --hidden=10 --eval_every=50 --checkpoint_every=60 --average=0.95"
_DARN_RESUMED += " --units=20 --half_life=80 --local_visible_period=14 --visible_conditional=factorial"
_DARN_CASES = (
    Case(
        "darn_resumed",
        "averaged parameters and a falling learning rate in two pieces, the exact likelihood; the codec on the model",
        (
            Call("train_darn", f"{_DARN_RESUMED} --num_steps=100"),
            Call("train_darn", f"{_DARN_RESUMED} --num_steps=180 --resume"),
            Call(
                "compress_with_darn",
                "--model=run --dataset=digits --rows=60 --output=digits.darn --report=report.json --check",
                command="encode",
            ),
            Call(
                "compress_with_darn",
                "--model=run --input=digits.darn --output=digits.npy",
                command="decode",
            ),
        ),
    ),
    Case(
        "darn_stopped",
        "early stopping with weight noise on two layers, by leave-one-out estimates of the gradient",
        (
            Call(
                "train_darn",
                f"{_DARN} --data=noise.npz --num_steps=3000 --hidden=4,3 --skip --learning_rate=0.05 --eval_every=20 "
                "--eval_samples=2 --weight_noise=graves --estimator=rloo --num_samples=3 --clip_norm=10 --patience=3 "
                "--visible_conditional=factorial",
            ),
        ),
        write_patterns,
    ),
    Case(
        "darn_local",
        "grey levels with local layers, by RMSProp, with importance sampling of some rows",
        (
            Call(
                "train_darn",
                f"{_DARN} --num_steps=60 --hidden=20 --eval_every=30 --eval_rows=300 --is_rows=50 --optimizer=rmsprop "
                "--weight_decay=1e-4 --local_kernels=4 --local_strides=2 --local_filters=8 --local_period=2 "
                "--observations=intensities --use_local --visible_conditional=local --local_visible_kernel=5 "
                "--local_visible_period=4",
            ),
        ),
    ),
    Case(
        "darn_mirrored",
        "two replicas; a sparse prior of one layer, whose samples are fast",
        (
            Call(
                "train_darn",
                f"{_DARN} --num_steps=80 --hidden=30 --eval_every=40 --sparsity=0.1 --sparsity_weight=2 --exact=no "
                "--strategy=mirrored --replicas=2 --batch_size=60 --seed=4 --visible_conditional=factorial",
            ),
        ),
    ),
    Case(
        "darn_visible",
        "a fully visible model",
        (
            Call(
                "train_darn",
                f"{_DARN} --data=patterns.csv --num_steps=60 --hidden= --eval_every=30 --conditional_units=7 "
                "--visible_conditional=nade",
            ),
        ),
        write_patterns,
    ),
)

_EBP = "--run_dir=run --dataset=breast_cancer --weights=real,binary,ternary --epochs=2 --max_folds=2 --hidden=15"
_EBP_CASES = (
    Case(
        "ebp_weights",
        "two seeds and folds with three kinds of weights",
        (
            Call(
                "train_ebp",
                f"{_EBP} --num_folds=4 --num_seeds=2",
            ),
        ),
    ),
    Case(
        "ebp_resumed",
        "stopped after one epoch and continued, with votes and a packed network",
        tuple(
            Call(
                "train_ebp",
                "--run_dir=run --dataset=digits --hidden=20,12 --epochs=3 --max_folds=2 --input_coding=sign "
                f"--export=digits.ebp --batch_size=20 --seed=2 {stop} --num_folds=4 --num_votes=3",
            )
            for stop in ("--max_seconds=0", "--resume")
        ),
    ),
    Case(
        "ebp_softmax",
        "an own table with a softmax, in float64",
        (
            Call(
                "train_ebp",
                "--run_dir=run --data=kinds.csv --target=kind --weights=real --epochs=2 --hidden=10 --softmax "
                "--dtype=float64 --num_folds=3",
            ),
        ),
        write_kinds,
    ),
)

_SHRINKING = "--run_dir=run --network=own --pretrained=own.keras --pretrain_epochs=1 --epochs=4 --polish_epochs=1"
_SHRINKING += " --polish_kl=0.2 --shrink_every=1"
_SHRINKING += " --warmup=0.5 --kl_weight=3 --learning_rate=5e-3 --scale_speed=30 --initial_log_std=-2"
_SHRINKING += " --codebooks=16,4 --tune_steps=10 --max_images=900 --prune_tolerance=20"
_COMPRESS_CASES = (
    Case(
        "compress_resumed",
        "shrinking on the way, a polish phase, tuned codebooks; stopped when plain, Bayesian and shrunk",
        tuple(
            Call("compress_network", f"{_SHRINKING} {stop}")
            for stop in ("--max_seconds=0", *["--resume --max_seconds=0"] * 2, "--resume")
        ),
        write_network,
    ),
    Case(
        "compress_horseshoe",
        "the horseshoe on two replicas with shifted images, a capped standard deviation and given thresholds",
        (
            Call(
                "compress_network",
                "--run_dir=run --prior=ghs --network=lenet300 --epochs=3 --warmup=1 --shift=1 --std_cap=0.2 "
                "--threshold=0.7,3.5,3.5 --bits=rule --codebooks=8 --max_images=900 --batch_size=64 "
                "--strategy=mirrored --replicas=2 --decay=linear --decay_from=0.3 --eval_every=2 "
                "--learning_rate=3e-3 --scale_speed=30 --initial_log_std=-3 --seed=1",
            ),
        ),
    ),
    Case(
        "compress_svd",
        "sparse variational dropout with the exact KL after training the plain network; the exported arrays",
        (
            Call(
                "compress_network",
                "--run_dir=run --prior=svd --pretrain_epochs=2 --pretrain_learning_rate=3e-3 --epochs=3 --warmup=0 "
                "--decay=none --kl=exact --codebooks= --max_images=900 --tolerance=1 --num_valid=100 "
                "--export=exported",
            ),
        ),
    ),
)

CASES = (*_DGP_CASES, *_RBM_CASES, *_DARN_CASES, *_EBP_CASES, *_COMPRESS_CASES)
"""All cases, by script."""

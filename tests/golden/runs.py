"""Numbers of one very short run of each training script, stored in numbers.json; test_numbers.py makes the runs again.

    python -m tests.golden.runs --tree=CHECKOUT                # writes numbers.json

The numbers are those of result.json but for times. They were recorded by an earlier tree than that which is tested, so
they tell of every change of a result, wanted or not. Record them again only for a change that says why they differ.
"""

import argparse
import json
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.golden.cases import Call, Case, write_houses, write_patterns
from tests.golden.compare import LEFT_OUT, check_tree, flat, run_call

__all__ = ["RUNS", "STORED", "numbers_of"]

STORED = Path(__file__).with_name("numbers.json")

#: One run of each script, in float64 where the script has a choice.
RUNS = (
    Case(
        "train_dgp",
        "a deep GP, a GP and a linear model",
        (
            Call(
                "train_dgp",
                "--run_dir=run --data=houses.csv --target=price --num_steps=8 --batch_size=50 --precision=full "
                "--num_predict_samples=5 --compare=gp,linear --num_layers=2 --num_inducing=10",
            ),
        ),
        write_houses,
    ),
    Case(
        "track_rbm",
        "the tracked log Z, that of AIS and the exact one",
        (
            Call(
                "track_rbm",
                "--run_dir=run --data=patterns.csv --num_steps=20 --batch_size=30 --eval_every=10 --log_every=10 "
                "--exact_every=10 --final_ais_betas=50 --ais_chains=10 --nojit "
                "--hidden=5 --num_temps=3 --num_chains=6 --learning_rate=0.1 --dtype=float64 --schedule=paper "
                "--target_chains=0 --nocentred --l2=0 --average=0 --patience=0",
            ),
        ),
        write_patterns,
    ),
    Case(
        "train_darn",
        "description lengths and the exact likelihood",
        (
            Call(
                "train_darn",
                "--run_dir=run --data=patterns.csv --num_steps=20 --batch_size=30 --eval_every=10 --hidden=4 "
                "--learning_rate=0.01 --average=0.5 --units=5 --dtype=float64 --visible_conditional=factorial",
            ),
        ),
        write_patterns,
    ),
    Case(
        "train_ebp",
        "errors of two kinds of weights",
        (
            Call(
                "train_ebp",
                "--run_dir=run --dataset=breast_cancer --weights=real,binary "
                "--epochs=1 --hidden=6 --dtype=float64 --num_folds=2 --num_votes=2",
            ),
        ),
    ),
    Case(
        "compress_network",
        "errors, architecture, bits and rates of a small network",
        (
            Call(
                "compress_network",
                "--run_dir=run --batch_size=32 --pretrain_epochs=2 --pretrain_learning_rate=1e-2 --epochs=1 "
                "--warmup=0.5 --kl_weight=2 --learning_rate=2e-3 --scale_speed=40 --initial_log_std=-3 --codebooks=4 "
                "--max_images=600 --prune_tolerance=10",
            ),
        ),
    ),
)


def numbers_of(folder: Path) -> dict[str, float]:
    """The numbers in the result.json of a run, by the path to each."""
    result: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    if "thresholds" in result:  # their names count the layers that Keras has made in this process
        result["thresholds"] = list(result["thresholds"].values())
    found = {key: value for key, value in flat(result) if isinstance(value, int | float)}
    return {key: value for key, value in found.items() if not LEFT_OUT.search(key)}


def main() -> None:
    """Make all runs with the scripts of a tree, and store their numbers."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.runs", description=__doc__.splitlines()[0])
    parser.add_argument("--tree", type=Path, required=True, help="the checkout whose numbers are stored")
    tree: Path = parser.parse_args().tree.resolve()
    check_tree(tree)
    numbers = {}
    for run in RUNS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if run.make is not None:
                run.make(folder)
            for call in run.calls:
                run_call(call, tree, folder)
            numbers[run.name] = numbers_of(folder / "run")
        print(f"{run.name}: {len(numbers[run.name])} numbers", flush=True)
    versions = {name: metadata.version(name) for name in ("tensorflow", "gpflow", "keras", "numpy")}
    text = json.dumps({"versions": versions, "numbers": numbers}, indent=1)
    STORED.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

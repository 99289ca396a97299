"""Every training script: killed by SIGKILL twenty times and resumed, it gives what it gives undisturbed."""

import importlib
import multiprocessing
import os
import shlex
import signal
import sys
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import numpy as np
import pytest

from gpflow_deep_base.runtime.quiet import NVIDIA
from tests.golden.cases import write_houses
from tests.golden.compare import ROOT, differences
from tests.scripts.running import checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.ci]

FLAGS = {
    "train_dgp": "--data=houses.csv --target=price --num_layers=2 --num_inducing=20 --compare=linear "
    "--num_steps=1000 --batch_size=100 --log_every=10 --eval_every=50 --checkpoint_every=20 --num_predict_samples=10",
    "track_rbm": "--hidden=16 --num_temps=4 --num_chains=16 --num_steps=800 --log_every=10 --eval_every=40 "
    "--checkpoint_every=16 --exact_every=200 --final_ais_betas=100 --ais_chains=20 --adaptive --nojit",
    "train_darn": "--hidden=10 --units=20 --num_steps=3000 --log_every=50 --eval_every=100 --checkpoint_every=60 "
    "--average=0.95 --final_samples=2",
    "train_ebp": "--dataset=digits --hidden=20 --epochs=8 --max_folds=3 --weights=binary,real --checkpoint_seconds=0",
    "compress_network": "--dataset=digits --epochs=30 --warmup=1 --learning_rate=1e-3 --scale_speed=30 "
    "--initial_log_std=-3 --max_images=900 --shrink_every=2 --codebooks=8 --checkpoint_seconds=0",
}
"""Some fifty checkpoints in each run."""

NUM_KILLS = 20
FORKED = multiprocessing.get_context("forkserver")
if not NVIDIA.exists():  # CUDA does not survive a fork
    FORKED.set_forkserver_preload([f"scripts.{script}" for script in FLAGS])  # TensorFlow is imported once for all runs


def run_here(script: str, folder: Path, arguments: list[str], output: Path) -> None:
    """Be the program `script`, called in the folder that holds `folder`."""
    with open(output, "ab") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.chdir(folder.parent)
    sys.argv = [str(ROOT / "scripts" / f"{script}.py"), *arguments]
    importlib.import_module(f"scripts.{script}").command()


def started(script: str, folder: Path) -> ForkServerProcess:
    """The run in `folder`, begun or continued in a process of its own."""
    more = ["--resume"] if (folder / "flags.txt").exists() else []
    arguments = [f"--run_dir={folder}", "--threads=1", *shlex.split(FLAGS[script]), *more]
    process = FORKED.Process(target=run_here, args=(script, folder, arguments, folder.with_suffix(".txt")))
    process.start()
    return process


def finish(script: str, folder: Path) -> None:
    """Run the script in `folder` to its end."""
    process = started(script, folder)
    process.join()
    assert process.exitcode == 0, folder.with_suffix(".txt").read_text()[-4000:]


def kill(script: str, folder: Path, rng: np.random.Generator) -> bool:
    """Begin or continue the run, kill it at a random moment of its start or after the next checkpoint."""
    before = checkpoints(folder)[-1:]
    process = started(script, folder)
    start_seconds = rng.uniform(0.0, 3.0) if rng.random() < 0.3 else np.inf
    begin = time.monotonic()
    while process.is_alive() and checkpoints(folder)[-1:] == before and time.monotonic() - begin < start_seconds:
        time.sleep(0.002)
    time.sleep(rng.uniform(0.0, 0.1))
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), folder.with_suffix(".txt").read_text()[-4000:]
    return process.exitcode != 0


@pytest.mark.parametrize("script", FLAGS)
def test_a_killed_run_is_continued_to_the_same_bits(script: str, tmp_path: Path, rng: np.random.Generator) -> None:
    write_houses(tmp_path)
    finish(script, tmp_path / "whole")
    was_killed = True
    num_kills = 0
    while was_killed and num_kills < NUM_KILLS:  # where this process sleeps for long, a run ends before its kill
        was_killed = kill(script, tmp_path / "killed", rng)
        num_kills += was_killed
    assert num_kills > 0
    finish(script, tmp_path / "killed")
    found = differences(tmp_path / "whole", tmp_path / "killed")
    assert [text for text in found if "checkpoints/" not in text.split(":")[0]] == []

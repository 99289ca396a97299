"""Every training script: killed by SIGKILL in the middle and resumed, it gives what it gives undisturbed."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.golden.cases import write_houses
from tests.golden.compare import ROOT, differences, environment

pytestmark = [pytest.mark.slow, pytest.mark.ci]

FLAGS = {
    "train_dgp": "--data=houses.csv --target=price --num_layers=2 --num_inducing=20 --compare=linear "
    "--num_steps=600 --batch_size=100 --log_every=10 --eval_every=50 --checkpoint_every=20 --num_predict_samples=10",
    "track_rbm": "--hidden=16 --num_temps=4 --num_chains=16 --num_steps=3000 --log_every=50 --eval_every=100 "
    "--checkpoint_every=100 --exact_every=500 --final_ais_betas=100 --ais_chains=20 --adaptive",
    "train_darn": "--hidden=10 --units=20 --num_steps=3000 --log_every=50 --eval_every=100 --checkpoint_every=100 "
    "--average=0.95 --final_samples=2",
    "train_ebp": "--dataset=digits --hidden=20 --epochs=4 --max_folds=3 --weights=binary,real --checkpoint_seconds=0",
    "compress_network": "--dataset=digits --epochs=6 --warmup=1 --learning_rate=5e-3 --scale_speed=30 "
    "--initial_log_std=-3 --max_images=900 --shrink_every=2 --codebooks=8 --checkpoint_seconds=0",
}
"""More than ten checkpoints in each run."""


def command(script: str, folder: Path, *more: str) -> list[str]:
    flags = [f"--run_dir={folder}", "--threads=1", *FLAGS[script].split(), *more]
    return [sys.executable, str(ROOT / "scripts" / f"{script}.py"), *flags]


def run(script: str, folder: Path, *more: str) -> None:
    done = subprocess.run(
        command(script, folder, *more), cwd=folder.parent, env=environment(ROOT), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def kill_after_a_checkpoint(script: str, folder: Path, delay: float) -> None:
    """Start the script (or go on), and kill it a moment after the next checkpoint."""
    more = ["--resume"] if (folder / "flags.txt").exists() else []
    before = newest_checkpoint(folder)
    process = subprocess.Popen(
        command(script, folder, *more),
        cwd=folder.parent,
        env=environment(ROOT),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and newest_checkpoint(folder) == before:
        time.sleep(0.002)
    time.sleep(delay)
    process.kill()
    _, errors = process.communicate()
    assert process.returncode == -9, f"ended before it was killed: {errors[-2000:]}"


def newest_checkpoint(folder: Path) -> list[str]:
    while True:
        try:
            return sorted(str(path) for path in folder.rglob("step-*"))[-1:]
        except FileNotFoundError:  # a folder was renamed or removed meanwhile
            continue


@pytest.mark.parametrize("script", FLAGS)
def test_a_killed_run_is_continued_to_the_same_bits(script: str, tmp_path: Path, rng: np.random.Generator) -> None:
    write_houses(tmp_path)
    run(script, tmp_path / "whole")
    for delay in rng.uniform(0.0, 0.1, size=2):
        kill_after_a_checkpoint(script, tmp_path / "killed", delay)
    run(script, tmp_path / "killed", "--resume")
    found = differences(tmp_path / "whole", tmp_path / "killed")
    assert [text for text in found if "checkpoints/" not in text.split(":")[0]] == []

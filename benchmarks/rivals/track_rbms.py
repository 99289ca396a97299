#!/usr/bin/env python3
"""Track log Z of an RBM of the PyTorch package rbms while its own trainer trains it, untouched.

    RIVAL_PYTHON benchmarks/rivals/track_rbms.py --updates=3000

Its interpreter needs rbms 0.5, PyTorch, scikit-learn, SciPy and lazy_loader, and no TensorFlow. The trainer is
`rbms.training.pcd.train`; the one thing that it is handed is an optimiser with a hook, which sees the parameters
before each step. The hook moves 20 particles at each of 10 temperatures, in PyTorch, and gives them to the tracker.
They do not drive the gradient, so that there is no bias to learn. At the end it prints log Z against the exact one, and
what sampling and tracking took of the time.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from rbms.bernoulli_bernoulli.implement import _compute_energy_hiddens
from rbms.dataset.dataset_class import RBMDataset
from rbms.parser import default_args
from rbms.training.pcd import train
from sklearn.datasets import load_digits

from rbm_tracking import PartitionTracker, linear_ladder

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--updates", type=int, default=3000)
parser.add_argument("--hidden", type=int, default=12, help="at most 16: log Z is summed over their states")
parser.add_argument("--learning_rate", type=float, default=0.02)
parser.add_argument("--every", type=int, default=50, help="updates between comparisons with the exact log Z")
parser.add_argument("--stride", type=int, default=1, help="updates between samples for the tracker")
args = parser.parse_args()

torch.manual_seed(0)
rows = (load_digits().data > 8).astype(np.float32)
beta = linear_ladder(10)
betas = torch.tensor(beta, dtype=torch.float32)[:, None, None]
states = torch.tensor((np.arange(2**args.hidden)[:, None] >> np.arange(args.hidden)) & 1, dtype=torch.float32)
tracker = PartitionTracker(beta, bias_variance=0.0, initial_bias_variance=0.0)
v = torch.bernoulli(torch.full((len(beta), 20, rows.shape[1]), 0.5))
sampled = spent = 0.0
errors: list[float] = []
halves: list[float] = []
flags: list[str] = []


def swapped(v: torch.Tensor, log_q: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Neighbouring temperatures exchange particles, the even pairs and then the odd ones."""
    for start in (0, 1):
        i = torch.arange(start, len(beta) - 1, 2)
        at = [log_q(v[i + a], betas[i + b]) for a in (0, 1) for b in (0, 1)]
        accept = torch.log(torch.rand(at[0].shape)) < at[1] - at[0] + at[2] - at[3]
        colder = v[i].clone()
        hotter = v[i + 1].clone()
        v[i] = torch.where(accept[..., None], hotter, colder)
        v[i + 1] = torch.where(accept[..., None], colder, hotter)
    return v


def watch(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """Before a step: one round of tempered Gibbs sampling and swaps, an observation, and sometimes the exact log Z."""
    global v, sampled, spent, count
    start = time.process_time()
    W, b, c = optimizer.param_groups[0]["params"]  # [n_v, n_h], [n_v], [n_h]

    def log_q(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softplus(at * (x @ W + c)).sum(-1) + x @ b

    count += 1
    v = torch.bernoulli(torch.sigmoid(betas * (torch.bernoulli(torch.sigmoid(betas * (v @ W + c))) @ W.T) + b))
    v = swapped(v, log_q)
    sampled += time.process_time() - start
    start = time.process_time()
    is_seen = count % args.stride == 0
    parameters = W.T.numpy(), b.numpy(), c.numpy()
    if is_seen or tracker.state is not None:
        tracked = tracker.observe(parameters, v.numpy() if is_seen else None)
    spent += time.process_time() - start
    if count % args.every == 0:
        exact = torch.logsumexp(-_compute_energy_hiddens(states.double(), b.double(), c.double(), W.double()), 0).item()
        errors.append(tracked.log_z - exact)
        halves.append(tracked.half_width)
        flags.extend(tracked.flags)


count = 0


def tracked_sgd(parameters: Iterable[torch.Tensor], **options: Any) -> torch.optim.Optimizer:
    """What the trainer takes for its optimiser."""
    optimizer = torch.optim.SGD(parameters, **options)
    optimizer.register_step_pre_hook(watch)
    return optimizer


def dataset(part: np.ndarray) -> RBMDataset:
    names = np.arange(len(part)).astype(str)
    return RBMDataset(part, np.zeros(len(part)), np.ones(len(part)), names, "digits", True, "cpu", torch.float32)


with tempfile.TemporaryDirectory() as folder:
    settings = {**default_args, "filename": f"{folder}/rbm.h5", "num_hiddens": args.hidden, "num_chains": 100}
    settings |= {"batch_size": 100, "gibbs_steps": 1, "learning_rate": args.learning_rate, "log": False}
    settings |= {"num_updates": args.updates + 1, "device": "cpu", "dtype": torch.float32, "seed": 0}
    settings |= {"train_size": 0.8, "test_size": 0.2, "training_type": "pcd"}
    begin = time.process_time()
    train(
        dataset(rows[:1400]),
        dataset(rows[1400:]),
        "BBRBM",
        settings,
        torch.float32,
        np.array([args.updates]),
        tracked_sgd,
    )
    total = time.process_time() - begin

inside = np.mean(np.abs(errors) <= np.array(halves))
rmse = np.sqrt(np.mean(np.square(errors)))
largest = np.abs(errors).max()
print(f"\nlog Z at the end: tracked {tracker.log_z:.3f} ± {tracker.log_z_std:.3f}, error {errors[-1]:+.3f} nats")
print(f"{len(errors)} comparisons: rmse {rmse:.3f}, largest {largest:.3f} nats")
print(f"inside the 95 % interval: {inside:.1%}; flags: {', '.join(sorted(set(flags))) or 'none'}")
print(f"CPU: {total:.1f} s, of which sampling for the tracker {sampled:.1f} s, tracking {spent:.1f} s")
print(f"tracking: {1e3 * spent / args.updates:.2f} ms an update")

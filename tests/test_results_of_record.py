"""The tables of our own pages are those of results/, and can be written again from their sweeps and commands."""

import re
import shlex
from pathlib import Path
from typing import Any

from gpflow_deep_runs.cli import described
from gpflow_deep_runs.cli.flags import read as read_flags
from gpflow_deep_runs.report.entries import of_sweep
from gpflow_deep_runs.report.pages import problems
from gpflow_deep_runs.report.results import cells, parsed, read_all
from gpflow_deep_runs.report.structure import read_json
from gpflow_deep_runs.sweeps import expand, read
from gpflow_deep_runs.sweeps.tables import as_json, tabulate
from gpflow_deep_runs.verbs import script_of

ROOT = Path(__file__).resolve().parent.parent


def test_pages_and_results_agree() -> None:
    """What is found here is mended by `make results`."""
    assert problems(ROOT) == []


def test_there_are_results() -> None:
    stored = read_all(ROOT / "results")
    assert len(stored) > 30
    names = {"uci", "uci_paper", "rbm_defaults", "ebp_text_probabilities", "darn_likelihood", "compression_files"}
    assert names <= stored.keys()


def commands() -> list[list[str]]:
    """Program and arguments of all commands of record, without the variables that are set before them."""
    lines = [run.command for name, results in read_all(ROOT / "results").items() for run in results.runs]
    return [[word for word in shlex.split(line) if not re.match("[A-Z_]+=", word)] for line in lines]


def test_commands_of_record_can_be_given_today() -> None:
    """Their programs and flags are there; those of benchmarks are tried in test_benchmarks.py."""
    descriptions = described.load()
    for program, *arguments in commands():
        if program == "gpflow-deep":
            verb, *arguments = arguments
            script = script_of(verb, arguments)
            key = f"{script} {verb}" if script == "compress_table" else script
            read_flags(descriptions[key], arguments, program)
        elif program == "make":
            assert arguments == ["train"]
        elif program.startswith("benchmarks/"):
            assert (ROOT / program).is_file(), program
        else:
            read_flags(descriptions[program.removesuffix(".py")], arguments, program)


def test_attempts_have_three_texts_of_one_line() -> None:
    attempts = read_json(ROOT / "docs" / "results" / "attempts.json")
    assert attempts
    for attempt in attempts:
        assert list(attempt) == ["system", "tried", "outcome"]
        for text in attempt.values():
            assert text.strip() == text != ""
            assert len(text.splitlines()) == 1


def test_the_sweep_of_uci_fits_its_results() -> None:
    """What `python -m gpflow_deep_runs.report sweep runs/uci` does, with the scores -k and k for the k-th run of the
    file."""
    sweep = read(ROOT / "results" / "sweeps" / "uci_paper.toml")
    runs = {run.name: number for number, run in enumerate(expand(sweep))}
    results = {}
    for run, k in runs.items():
        scores = {"test": {"log_likelihood_nats": -k, "rmse": k}, "train_seconds": k}
        results[run] = {"models": dict.fromkeys(("linear", "gp", "dgp"), scores)}
    made = {"commit": "c" * 40, "is_dirty": False, "commits_resumed": [], "machine": "m", "start_time": "2026-11-22"}
    table: dict[str, Any] = {"sweep": "uci_paper", "over": ["split"], "cells": as_json(tabulate(sweep, results))}
    table |= {"runs": {run: {**made, "seconds": 10 * number} for run, number in runs.items()}}
    before = read_json(ROOT / "results" / "uci_paper.json")
    after = parsed(of_sweep(table, before, command="sweep.py x.toml"), "uci_paper")
    assert after.tables == parsed(before, "uci_paper").tables
    boston = [runs[f"boston-split{split}-dgp3"] for split in range(3)]
    mean, (*_, cell) = sum(boston) / 3, cells(after, "rmse")[1]
    assert cells(after, "rmse")[1][4].startswith(f"{mean:.3f} ± ")
    assert cell == f"{10 * (boston[1] - 1)}, {10 * boston[1]}"  # seconds: medians of the runs of both settings
    assert cells(after, "differences")[1][1:4] == ["0.000 ± 0.000", "0.000 ± 0.000", "-1.000 ± 0.000"]

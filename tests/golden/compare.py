"""Whether the working tree computes the same, bit for bit, as a commit: short runs of every script in both trees.

    make golden BASE=HEAD~1                                    # all cases
    make golden BASE=HEAD~1  CASES=darn,rbm_stopped            # those whose names hold one of these words
    python -m tests.golden.compare --base=HEAD~1 --base_tree=CHECKOUT --cases=darn

Prints one line a case: that all is equal, or the first difference, and is left with status 1 if there is one. What the
commit gives is kept in runs/golden/COMMIT/CASE, so that its tree runs once; what the working tree gave last is in
runs/golden/here/CASE. Bits differ between processors and versions of TensorFlow: both runs have to be made here.

Compared are models and other arrays (each array bit for bit), compressed files and predictions (each byte), and all
numbers in scalars.jsonl and result.json, but times and flags. Plots, checkpoints and event files are not compared.
"""

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.cases import CASES, Call, Case

__all__ = [
    "LEFT_OUT",
    "ROOT",
    "Failed",
    "check_tree",
    "differences",
    "environment",
    "flat",
    "main",
    "run_call",
    "run_case",
]

ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / "runs" / "golden"

#: Keys and tags whose values are times, or name flags; a value within dictionaries has the key "models/gp/num_steps".
LEFT_OUT = re.compile(r"second|^flags(/|$)|input_wait_percent")
#: Files whose content is not a result: what a run was called with, and what it keeps for itself.
NOT_COMPARED = frozenset({"provenance.json", "inputs.json", "stream.npz"})
#: Folders of a run that are not kept.
NOT_KEPT = ("checkpoints", "tensorboard", "plots", "saved_model")
LIMIT_SECONDS = 1800


class Failed(Exception):
    """A script did not end with status 0."""


# Runs


def environment(tree: Path) -> dict[str, str]:
    """Environment of a script of `tree`: its own packages come first, one thread, no GPU."""
    own = {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return {**os.environ, **own}


def run_call(call: Call, tree: Path, folder: Path) -> None:
    """Call a script of `tree` in `folder`.

    :raises Failed: with the end of its output, if its status is not 0.
    """
    script = tree / "scripts" / f"{call.script}.py"
    arguments = [*call.arguments(), "--threads=1"]
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=folder,
        env=environment(tree),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    with open(folder / "output.txt", "a", encoding="utf-8") as file:
        file.write(f"$ {call.script}.py {' '.join(arguments)}\n{done.stdout}\n")
    if done.returncode:
        end = "\n".join(done.stdout.splitlines()[-15:])
        raise Failed(f"{call.script}.py {' '.join(arguments)}\nin {folder} ended with status {done.returncode}:\n{end}")


def run_case(case: Case, tree: Path, folder: Path) -> None:
    """Run all calls of a case in a new `folder`, and leave there what is compared.

    :raises Failed: as :func:`run_call`; the folder then is named as `folder`, with "-failed".
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    failed = folder.with_name(f"{folder.name}-failed")
    for path in (folder, failed):
        shutil.rmtree(path, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{case.name}-") as name:
        work = Path(name) / "work"
        work.mkdir()
        try:
            if case.make is not None:
                case.make(work)
            for call in case.calls:
                run_call(call, tree, work)
        except Failed:
            work.replace(failed)
            raise
        for path in [path for kind in NOT_KEPT for path in work.rglob(kind)]:
            shutil.rmtree(path)
        (work / "case.txt").write_text(case.definition(), encoding="utf-8")
        work.replace(folder)


def check_tree(tree: Path) -> None:
    """Refuse a tree whose packages a script would not find first."""
    program = "import importlib.util as u; spec = u.find_spec('gpflow_deep'); print(spec and spec.origin)"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=folder, env=environment(tree), capture_output=True, text=True, check=True)
    found = Path(done.stdout.strip().splitlines()[-1]).resolve()
    if not found.is_relative_to(tree.resolve()):
        raise Failed(f"scripts of {tree} would import {found}")


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """The files of a commit in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(folder, filter="data")
        yield Path(folder)


# Comparison: each function yields the differences of two files as text


def differences(old: Path, new: Path) -> Iterator[str]:
    """All differences of what a case left in two folders.

    :raises ValueError: if there is nothing to compare.
    """
    definition, definition_now = old / "case.txt", new / "case.txt"
    if definition.is_file() and definition_now.is_file() and definition.read_text() != definition_now.read_text():
        yield "the case was changed meanwhile; run it again"
        return
    found = [path.relative_to(old) for path in sorted(old.rglob("*")) if path.name not in NOT_COMPARED]
    compared = [(path, how) for path in found if (how := _comparison(path)) is not None]
    if not compared:
        raise ValueError(f"{old} holds no files to compare; remove it and run again.")
    for path, how in compared:
        if not (new / path).is_file():
            yield f"{path} is missing"
            continue
        yield from (f"{path}: {text}" for text in how(old / path, new / path))


def _comparison(path: Path) -> Callable[[Path, Path], Iterator[str]] | None:
    by_suffix = {
        ".npz": _arrays,
        ".jsonl": _scalars,
        ".json": _numbers,
        **dict.fromkeys((".csv", ".npy", ".bcz", ".darn", ".ebp"), _bytes),
    }
    return by_suffix.get(path.suffix)


def _bytes(old: Path, new: Path) -> Iterator[str]:
    a, b = old.read_bytes(), new.read_bytes()
    if a != b:
        first = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        yield f"differs from byte {first} (line {1 + a[:first].count(10)}) on; {len(a)} and {len(b)} bytes"


def _arrays(old: Path, new: Path) -> Iterator[str]:
    with np.load(old) as a, np.load(new) as b:
        if set(a) != set(b):
            yield f"arrays are not the same: {', '.join(sorted(set(a) ^ set(b)))}"
        for name in sorted(set(a) & set(b)):
            x, y = (member if isinstance(member := file[name], np.ndarray) else np.array(member) for file in (a, b))
            if (x.dtype, x.shape) != (y.dtype, y.shape):
                yield f"{name} is {x.dtype}{list(x.shape)} and {y.dtype}{list(y.shape)}"
            elif x.tobytes() != y.tobytes():
                number = int(np.sum(x != y))
                text = f"largest {np.max(np.abs(x - y)):.3g}" if x.dtype.kind == "f" else f"{x} and {y}"
                yield f"{name} differs in {number} of {x.size} numbers, {text}"


def _scalars(old: Path, new: Path) -> Iterator[str]:
    a, b = (_lines(path) for path in (old, new))
    steps = [[line["step"] for line in lines] for lines in (a, b)]
    if steps[0] != steps[1]:
        yield f"steps are {steps[0]} and {steps[1]}"
        return
    for x, y in zip(a, b, strict=True):
        yield from (f"step {x['step']}, {text}" for text in _values(x, y))


def _lines(path: Path) -> list[dict[str, Any]]:
    """The scalars of each step, which may be on several lines; lines that are of no step are numbered."""
    found: list[dict[str, Any]] = []
    for number, line in enumerate(map(json.loads, path.read_text(encoding="utf-8").splitlines())):
        line.setdefault("step", f"of line {number}")
        if found and found[-1]["step"] == line["step"]:
            found[-1].update(line)
        else:
            found.append(line)
    return found


def _numbers(old: Path, new: Path) -> Iterator[str]:
    a, b = (dict(flat(json.loads(path.read_text(encoding="utf-8")))) for path in (old, new))
    yield from _values(a, b)


def _values(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*old, *new]):
        if LEFT_OUT.search(key):
            continue
        a, b = (_without_seconds(values[key]) if key in values else "nothing" for values in (old, new))
        if a != b:
            yield f"{key} is {a!r} and {b!r}"


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of all that is neither a dictionary nor a list; of an empty one, itself."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from flat(inner, f"{name}/{key}".lstrip("/"))
    else:
        yield name, value


def _without_seconds(value: Any) -> Any:
    """A text such as a row of a table without the time in it."""
    return re.sub(r"\b\d+ s\b", "s", value) if isinstance(value, str) else value


# The command


def chosen(words: str) -> list[Case]:
    """The cases whose names hold one of the words, which commas separate; all for an empty text."""
    wanted = [word for word in words.split(",") if word]
    cases = [case for case in CASES if not wanted or any(word in case.name for word in wanted)]
    if not cases:
        raise SystemExit(f"no case is called {words}; there are {', '.join(case.name for case in CASES)}.")
    return cases


def prepare(cases: Sequence[Case], commit: str, base_tree: Path | None) -> None:
    """Run the cases of the commit that are not kept yet, or have changed."""

    def is_kept(case: Case) -> bool:
        stored = STORE / commit / case.name / "case.txt"
        return stored.is_file() and stored.read_text(encoding="utf-8") == case.definition()

    missing = [case for case in cases if not is_kept(case)]
    if missing and base_tree is None:
        with checkout(commit) as tree:
            prepare(missing, commit, tree)
        return
    for number, case in enumerate(missing):
        assert base_tree is not None
        if number == 0:
            check_tree(base_tree)
        start = time.monotonic()
        run_case(case, base_tree, STORE / commit / case.name)
        print(f"{case.name}: {commit[:7]} ran for {time.monotonic() - start:.0f} s", flush=True)


def main() -> int:
    """Compare, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.compare", description=__doc__.splitlines()[0])
    parser.add_argument("--base", required=True, help="the commit to compare with")
    parser.add_argument("--base_tree", type=Path, help="a checkout of it; one is made if this is not given")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the tree to compare; this one if not given")
    parser.add_argument("--cases", default="", help="words that names of cases have to hold, with commas between them")
    parser.add_argument("--base_only", action="store_true", help="run the commit only")
    given = parser.parse_args()
    revision = ["git", "rev-parse", "--verify", f"{given.base}^{{commit}}"]
    commit = subprocess.run(revision, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    cases = chosen(given.cases)
    prepare(cases, commit, given.base_tree)
    if given.base_only:
        return 0
    check_tree(given.tree)
    num_different = 0
    for case in cases:
        start = time.monotonic()
        try:
            run_case(case, given.tree.resolve(), STORE / "here" / case.name)
            found = list(differences(STORE / commit / case.name, STORE / "here" / case.name))
        except Failed as error:
            found = [str(error)]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        text = f"DIFFERENT: {found[0]}{more}" if found else "equal"
        print(f"{case.name}: {text} ({time.monotonic() - start:.0f} s)", flush=True)
        num_different += bool(found)
    return 1 if num_different else 0


if __name__ == "__main__":
    sys.exit(main())

"""A training in a second, without TensorFlow: it has the folder, the lock, checkpoints and manners of a real one.

Flags: --run_dir, --resume, --num_steps, --split, --seed, --offset, --fail (end with an error after the first
checkpoint), --stubborn (leave SIGTERM alone), --hold (runs of this split wait after three steps for the file `go` in
the folder of the sweep). Each step leaves a checkpoint.
"""

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path

STEP_SECONDS = 0.01
HELD_STEP = 3


def main() -> None:
    words = [word.lstrip("-").partition("=") for word in sys.argv[1:]]
    flags = {name: value for name, _, value in words}
    folder, num_steps = Path(flags["run_dir"]), int(flags["num_steps"])
    checkpoints = folder / "checkpoints"
    steps = sorted(int(path.name.split("-")[1]) for path in checkpoints.glob("step-*"))
    if bool(steps) != ("resume" in flags):
        sys.exit(f"training.py: error: --run_dir={folder} has checkpoints {steps}, got --resume={'resume' in flags}.")
    checkpoints.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (folder / ".lock").write_text(f"process {os.getpid()} on this machine\n")
    train(folder, flags, steps[-1] if steps else 0, num_steps)


def train(folder: Path, flags: dict[str, str], first: int, num_steps: int) -> None:
    stops: list[int] = []
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in flags else lambda number, frame: stops.append(number))
    (folder / "flags.txt").write_text(
        "".join(f"--{n}={v}\n" for n, v in flags.items() if n not in ("run_dir", "resume"))
    )
    with open(folder / "starts.txt", "a") as file:
        file.write(f"{first}\n")
    go = folder.parent.parent / "go"
    for step in range(first + 1, num_steps + 1):
        time.sleep(STEP_SECONDS)
        (folder / "checkpoints" / f"step-{step}").mkdir()
        print(f"step {step} of {num_steps} (some %), more", file=sys.stderr, flush=True)
        if "fail" in flags and not (folder / "mended").exists():
            raise FloatingPointError(f"the bound is nan after step {step}.")
        while step == HELD_STEP and flags.get("hold") == flags["split"] and not stops and not go.exists():
            time.sleep(STEP_SECONDS)
        if stops:
            print("stopped; continue it with --resume.", file=sys.stderr)
            sys.exit(128 + stops[0])
    score = 10.0 * int(flags["split"]) + float(flags.get("offset", 0))
    result = {"models": {"dgp": {"score": score}, "gp": {"score": 0.0}}, "num_steps": num_steps}
    (folder / ".tmp-result.json").write_text(json.dumps(result))
    os.replace(folder / ".tmp-result.json", folder / "result.json")


if __name__ == "__main__":
    main()

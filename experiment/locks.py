"""The lock of a folder: one process writes into it. No TensorFlow here, so that a folder in use is refused at once."""

import fcntl
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from experiment.files import make_folder

__all__ = ["LOCK", "lock", "refuse_if_held", "refuse_run_dir_in_use"]

LOCK = ".lock"


@contextmanager
def lock(path: str | os.PathLike[str], *, flag: str = "run_dir") -> Iterator[None]:
    """Hold the folder of a run, so that no second process writes into it; the system frees it when a process ends.

    The file `.lock` stays; it says who held the folder last.

    :param flag: what the folder was given as, for the message.
    :raises ValueError: if another process holds it, naming its host and number.
    """
    folder = Path(path).expanduser()
    make_folder(folder)
    with open(folder / LOCK, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            owner = file.read().strip() or "another process"
            raise ValueError(
                f"--{flag}={folder} is in use by {owner}; wait for its end, or give another --{flag}."
            ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}\n")
        file.flush()
        yield


def refuse_if_held(folder: Path, *, flag: str = "run_dir") -> None:
    """Look at the lock of a folder that may be there, and leave no lock where there is none.

    :raises ValueError: as :func:`lock`.
    """
    if (folder / LOCK).exists():
        with lock(folder, flag=flag):
            pass


def refuse_run_dir_in_use(argv: Sequence[str]) -> None:
    """End a program in one line, with status 2, if another process holds the folder that its --run_dir names.

    For the first line of a script, before TensorFlow takes seconds to start. Of several workers, the chief holds it.
    """
    text = next((word.partition("=")[2] for word in argv[1:] if word.lstrip("-").startswith("run_dir=")), "")
    if not text or "TF_CONFIG" in os.environ:
        return
    try:
        refuse_if_held(Path(text).expanduser())
    except ValueError as error:
        print(f"{Path(argv[0]).name}: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None

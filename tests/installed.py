"""The wheel as users have it: its commands, what it requires and no extra, in a folder that holds nothing else.

Only what the distributions of this environment say of their requirements is followed, so nothing is downloaded. It
takes seconds to import TensorFlow: one process does, and each command is a fork of it. This file is both programs:

    python -IS tests/installed.py serve SOCKET SITE             # imports, and forks for whoever asks
    python -IS tests/installed.py ask SOCKET NAME [WORD ...]    # what the commands in bin/ call
"""

import importlib
import importlib.metadata
import json
import os
import resource
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

__all__ = ["Installation", "installed"]

FIRST = ("tensorflow", "tensorflow_probability", "gpflow", "keras", "pandas", "matplotlib.pyplot", "sklearn.ensemble")
"""What the process of all commands imports."""


class Installation(NamedTuple):
    """Where it is, and how its commands are called."""

    folder: Path
    environment: dict[str, str]

    def run(self, *command: str | Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
        """Run a program with the commands of the wheel, and `python`, first on its PATH."""
        words = [str(word) for word in command]
        return subprocess.run(words, cwd=cwd, env=self.environment, capture_output=True, text=True, check=False)

    def seconds(self) -> list[float]:
        """CPU seconds of each command so far, without those of imports that all share."""
        return [float(line) for line in (self.folder / "seconds").read_text().splitlines()]


@contextmanager
def installed(wheel: Path, folder: Path) -> Iterator[Installation]:
    """Unpack a wheel beside what it requires, and answer its commands until the block is left.

    :param folder: made for it; an empty one.
    """
    site = folder / "site"
    site.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (information,) = importlib.metadata.distributions(path=[str(site)])
    _link(_required(information), site)
    socket_folder = Path(tempfile.mkdtemp())  # the path of a socket has to be short
    names = ["python", *(point.name for point in information.entry_points if point.group == "console_scripts")]
    (folder / "bin").mkdir()
    (folder / "seconds").touch()
    for name in names:
        program = folder / "bin" / name
        program.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" ask "{socket_folder}/ask" {name} "$@"\n'
        )
        program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TF_CPP"))}
    own = {"PATH": f"{folder / 'bin'}{os.pathsep}{os.defpath}", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1"}
    environment = {**kept, **own}
    serve = [sys.executable, "-IS", __file__, "serve", str(socket_folder / "ask"), str(site), str(folder / "seconds")]
    try:
        with subprocess.Popen(serve, stdout=subprocess.PIPE, stdin=subprocess.PIPE, env=environment) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield Installation(folder, environment)  # the end of its input, however this process ends, ends the server
    finally:
        shutil.rmtree(socket_folder)


def _required(wanted: importlib.metadata.Distribution) -> list[importlib.metadata.Distribution]:
    """The distributions of this environment that one requires without extras, and those that they require."""
    from packaging.requirements import Requirement  # the program below runs without it

    found: dict[tuple[str, frozenset[str]], importlib.metadata.Distribution] = {}
    waiting = [(wanted, frozenset[str]())]
    while waiting:
        distribution, extras = waiting.pop()
        for requirement in map(Requirement, distribution.requires or []):
            asked = [{"extra": extra} for extra in ("", *extras)]
            if requirement.marker is None or any(map(requirement.marker.evaluate, asked)):
                key = (requirement.name.lower(), frozenset(requirement.extras))
                if key not in found:
                    found[key] = importlib.metadata.distribution(requirement.name)
                    waiting.append((found[key], key[1]))
    return list(found.values())


def _link(distributions: list[importlib.metadata.Distribution], site: Path) -> None:
    """Links to the files and folders of distributions, as if they were installed in `site`."""
    for distribution in distributions:
        for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(str(distribution.locate_file(top)))


# The process that imports, and its forks.


def _serve(address: str, site: str, seconds: str) -> None:
    """Answer each request by a fork that runs its command, until standard input ends."""
    sys.path.insert(0, site)
    sys.executable = shutil.which("python") or sys.executable  # that of bin/
    importlib.import_module("gpflow_deep_base.runtime.quiet").start_tensorflow()
    for name in FIRST:
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                break
            connection.close()
        else:
            return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    content, files, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        with open(seconds, "a", encoding="utf-8") as stream:
            stream.write(f"{spent.ru_utime + spent.ru_stime:.2f}\n")
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    connection.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    _become(**json.loads(content))


def _become(cwd: str, words: list[str]) -> None:
    """Run a command in this process."""
    os.chdir(cwd)
    name, *rest = words
    if name != "python":
        (point,) = importlib.metadata.entry_points(group="console_scripts", name=name)
        sys.argv = words
        sys.exit(point.load()())
    if rest[0] == "-m":
        sys.argv, sys.path[:0] = rest[1:], [cwd]
        runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
    elif rest[0] == "-c":
        sys.argv, sys.path[:0] = rest[1:], [cwd]
        exec(compile(rest[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[:0] = rest, [str(Path(rest[0]).resolve().parent)]
        runpy.run_path(rest[0], run_name="__main__")


def _ask(address: str, *words: str) -> NoReturn:
    """Have a command run with the standard streams of this process, and end as it did."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        request: dict[str, Any] = {"cwd": os.getcwd(), "words": words}
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        sys.exit(int(connection.recv(16) or 1))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(*sys.argv[2:])
    else:
        _ask(*sys.argv[2:])

"""Each line of shell in the READMEs and pages calls a command that exists, with flags that it has and takes."""

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpflow_deep_runs.cli import described
from gpflow_deep_runs.cli.flags import HelpWanted, help_page, read
from gpflow_deep_runs.command import usage
from gpflow_deep_runs.verbs import VERBS, script_of

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PATTERNS = ("README.md", "CONTRIBUTING.md", "*/README.md", "docs/*.md", "docs/howto/*.md", "docs/notebooks/*.md")
OF_SHELL = {"export", "set", "cd", "exec", "if", "then", "else", "fi", "srun", "pip", "python3.11", "tensorboard"}
DESCRIPTIONS = described.load()


def lines_of(text: str) -> Iterator[str]:
    """Commands of the blocks of shell, those on several lines as one, without comments."""
    for block in BLOCK.findall(text):
        command = ""
        for line in block.replace("\\\n", " ").splitlines():
            command = f"{command}\n{line}" if command else line
            if is_whole(command):
                if command.split("#")[0].strip():
                    yield command
                command = ""
        assert not command, f"a quote has no end: {command}"


def is_whole(command: str) -> bool:
    """Whether each quote ends that begins."""
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return True


def calls_of(line: str) -> Iterator[list[str]]:
    """The calls of `gpflow-deep` anywhere in a line, or all words of another line."""
    words = shlex.split(line, comments=True)
    if len(words) > 1 and any("gpflow-deep " in word for word in words):  # within a quoted script
        for word in words:
            for part in re.findall(r"gpflow-deep [^;|&\n]*", word):
                yield part.split()
    starts = [at for at, word in enumerate(words) if word == "gpflow-deep"]
    for at in starts:
        yield words[at:]
    if not starts:
        yield words


def complaint(words: list[str]) -> str:
    """What is wrong with a call, or ""."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0], re.DOTALL):
        words = words[1:]
    if not words or words[0] in OF_SHELL or words[0].startswith("-"):
        return ""
    match words[0]:
        case "gpflow-deep":
            return of_verb(words[1:])
        case "make":
            targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            return "" if set(words[1:2]) <= set(targets) else f"there is no target {words[1]}"
        case "python" if words[1:2] == ["-m"]:
            return "" if importlib.util.find_spec(words[2]) is not None else f"there is no module {words[2]}"
        case "python":
            return ""
        case "bcz":
            return ""
        case name if name.startswith("benchmarks/"):  # as results name what made them
            return "" if (ROOT / name).is_file() else f"there is no {name}"
    return f"there is no command {words[0]}"


def of_verb(words: list[str]) -> str:
    if not words or words[0] in ("--help", "--version"):
        return ""
    if words[0] not in VERBS:
        return f"there is no verb {words[0]}"
    arguments = words[1:]
    name = script_of(words[0], arguments)
    if f"{name} {words[0]}" in DESCRIPTIONS:
        name = f"{name} {words[0]}"
    elif name not in DESCRIPTIONS and arguments and f"{name} {arguments[0]}" in DESCRIPTIONS:
        name, arguments = f"{name} {arguments[0]}", arguments[1:]
    if arguments == ["--help"] or "..." in arguments:
        return ""
    arguments = [word for word in arguments if not re.match(r"\$|--flagfile=|>|2>", word)]
    try:
        read(DESCRIPTIONS[name], arguments, words[0])
    except HelpWanted:
        return ""
    except ValueError as error:
        return str(error)
    return ""


def test_help_fits_a_terminal() -> None:
    texts = [usage(), *(help_page(description, f"gpflow-deep {name}") for name, description in DESCRIPTIONS.items())]
    assert max(len(line) for text in texts for line in text.splitlines()) <= 80


PAGES = sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern) if "_build" not in path.parts})


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_exist_and_take_their_flags(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = {line: complaint(call) for line in lines_of(text) for call in calls_of(line)}
    assert not {line: said for line, said in found.items() if said}


def test_pages_have_commands_and_tables_name_verbs_that_exist() -> None:
    """So that the check above cannot pass for want of lines; words within sentences count, too."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert sum(line.startswith("gpflow-deep ") for text in texts for line in lines_of(text)) >= 30
    named = {verb for text in texts for verb in re.findall(r"`gpflow-deep ([a-z][a-z-]*)", text)}
    assert named <= set(VERBS)
    assert {"train", "predict"} <= named


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("train_dgp.py --run_dir=a", "there is no command train_dgp.py"),
        ("gpflow-deep learn --run_dir=a", "there is no verb learn"),
        ("gpflow-deep train --run_dir=a --layers=2", "Unknown command line flag 'layers'"),
        ("gpflow-deep train --run_dir=a --num_layers=two", "num_layers"),
        ("gpflow-deep sweep", "--file must be given"),
        ("make tests", "there is no target tests"),
        ("python -m gpflow_deep_runs.nothing", "there is no module"),
        ("sbatch --wrap 'srun gpflow-deep train --run_dirs=a'", "Unknown command line flag 'run_dirs'"),
    ],
)
def test_wrong_lines_are_found(line: str, said: str) -> None:
    assert any(said in complaint(call) for call in calls_of(line))

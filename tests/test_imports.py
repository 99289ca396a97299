"""The dependency rule: scripts -> {one paper package, gpflow_deep_runs} -> the ground floor, which needs NumPy alone.

One name goes the other way: where an estimator gets a frame with texts, `gpflow_deep_base.numbers.columns` imports the
reader of tables, `READER`."""

import ast
import graphlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAPERS = {"gpflow_deep", "darn", "rbm_tracking", "ebp", "compression"}
PRESENT = sorted(package for package in PAPERS if (ROOT / package).is_dir())
NEVER = {"tests", "scripts", "benchmarks"}
GROUND = "gpflow_deep_base"


def imported_names(source: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that `source` imports absolutely: `from a import b` gives "a.b"."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom(level=0, module=str(module)):
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def violations(source: str, forbidden: set[str]) -> list[str]:
    """ "line: name" of the imports at or below one of the `forbidden` dotted names."""
    return [
        f"{line}: {name}"
        for line, name in imported_names(source)
        if any(f"{name}.".startswith(f"{top}.") for top in forbidden)
    ]


def violations_in(folder: Path, forbidden: set[str]) -> list[str]:
    files = sorted(folder.rglob("*.py"))
    assert files, f"{folder} holds no Python files"
    return [
        f"{path.relative_to(ROOT)}:{violation}"
        for path in files
        for violation in violations(path.read_text(encoding="utf-8"), forbidden)
    ]


@pytest.mark.parametrize("package", PRESENT)
def test_paper_package_stands_alone(package: str) -> None:
    forbidden = (PAPERS - {package}) | NEVER | {"gpflow_deep_runs", "absl.flags", "absl.app"}
    assert not violations_in(ROOT / package, forbidden)


def test_the_ground_floor_knows_nobody() -> None:
    forbidden = PAPERS | NEVER | {"gpflow_deep_runs", "absl", "gpflow", "keras", "pandas", "scipy", "sklearn"}
    assert not violations_in(ROOT / GROUND, forbidden)


def test_runs_and_data_know_no_models() -> None:
    assert not violations_in(ROOT / "gpflow_deep_runs", PAPERS | NEVER | {"gpflow", "gpflux"})


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").glob("*.py")), ids=lambda path: path.name)
def test_script_uses_at_most_one_paper_package(script: Path) -> None:
    names = {name.split(".")[0] for _, name in imported_names(script.read_text(encoding="utf-8"))}
    assert len(names & PAPERS) <= 1
    assert not names & NEVER


@pytest.mark.parametrize(
    "source",
    [
        "import gpflow_deep_runs",
        "import numpy, gpflow_deep_runs.loop as loop",
        "from gpflow_deep_runs import loop",
        "from gpflow_deep_runs.loop import train",
        "def f():\n    from gpflow_deep_runs import loop",
        "if True:\n    import gpflow_deep_runs.loop",
        "import importlib\nimportlib.import_module('gpflow_deep_runs.loop')",
        "__import__('gpflow_deep_runs')",
        "from absl import flags",
        "from absl import logging, flags as f",
        "import absl.flags",
        "from absl.flags import FLAGS",
    ],
)
def test_the_check_finds_each_form_of_import(source: str) -> None:
    assert len(violations(source, {"gpflow_deep_runs", "absl.flags"})) == 1


# Inside the repository

FLOORS = {
    "verbs": 0,
    "run_dir": 0,
    "report": 1,
    "data": 1,
    "run": 2,
    "cli": 3,
    "early": 4,
    "command": 4,
    "sweeps": 4,
}
"""Of the parts of `gpflow_deep_runs`: each may import lower floors, and itself."""

CODE = sorted(path for top in (*PRESENT, GROUND, "gpflow_deep_runs", "scripts") for path in (ROOT / top).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in CODE}


def imported_modules(path: Path, *, with_types: bool = True) -> set[str]:
    """Our modules that a file imports, wherever in the file: the longest part of each name that is a module.

    :param with_types: those that it imports for types alone, which are not imported when it runs, too.
    """
    found, source = set(), path.read_text(encoding="utf-8")
    source = source if with_types else ast.unparse(WithoutTypes().visit(ast.parse(source)))
    for name in (*(name for _, name in imported_names(source)), *relative_names(source, path)):
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            if ".".join(parts[:end]) in MODULES:
                found.add(".".join(parts[:end]))
                break
    return found - {module_name(path)}


class WithoutTypes(ast.NodeTransformer):
    """Leaves out what stands below `if TYPE_CHECKING:`."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" and not node.orelse else self.generic_visit(node)


def relative_names(source: str, path: Path) -> Iterator[str]:
    """Dotted names of what a file imports relatively: in a/b.py, `from .c import d` gives "a.c.d"."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *([node.module] if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def floor_of(module: str) -> int | None:
    parts = module.split(".")
    return FLOORS[parts[1]] if parts[0] == "gpflow_deep_runs" and len(parts) > 1 else None


def test_the_floors_of_runs_and_data() -> None:
    wrong = []
    for path in sorted((ROOT / "gpflow_deep_runs").rglob("*.py")):
        own, floor = module_name(path), floor_of(module_name(path))
        for other in imported_modules(path):
            other_floor, is_same_part = floor_of(other), own.split(".")[1:2] == other.split(".")[1:2]
            if floor is not None and other_floor is not None and not is_same_part and other_floor >= floor:
                wrong.append(f"{own} imports {other}")
    assert not wrong


ROOMS: dict[str, list[set[str]]] = {
    "gpflow_deep": [{"layers", "model", "posteriors", "functions"}, {"judge", "files"}, {"train"}],
    "darn": [{"model", "images", "more"}, {"train", "codec"}],
    "rbm_tracking": [{"model"}, {"track"}, {"estimates"}, {"use"}],
    "ebp": [{"network", "second_order"}, {"training"}, {"packed"}, {"estimators"}],
    "compression": [{"layers", "graph"}, {"rounding"}, {"files", "train"}],
}
"""Of each paper's package, from the ground up: a room may import rooms of its floor, and of lower ones."""


def floor_of_room(module: str) -> int | None:
    package, _, rest = module.partition(".")
    room = rest.split(".")[0]
    return next((floor for floor, rooms in enumerate(ROOMS[package]) if room in rooms), None)


@pytest.mark.parametrize("package", PRESENT)
def test_the_floors_of_rooms(package: str) -> None:
    folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    above = {"keras"} if package == "gpflow_deep" else set()
    assert set().union(*ROOMS[package]) == folders - above
    wrong = []
    for path in sorted((ROOT / package).rglob("*.py")):
        name = module_name(path)
        floor = floor_of_room(name)
        for other in imported_modules(path):
            is_ours = other.split(".")[0] == package and other != package
            other_floor = floor_of_room(other) if is_ours else None
            if floor is not None and is_ours and (other_floor is None or other_floor > floor):
                wrong.append(f"{name} imports {other}")
    assert not wrong


@pytest.mark.parametrize("room", sorted({module for module in MODULES if MODULES[module].name == "__init__.py"}))
def test_each_door_names_the_few_entries_behind_it(room: str) -> None:
    text = ast.get_docstring(ast.parse(MODULES[room].read_text(encoding="utf-8"))) or ""
    folder = MODULES[room].parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    rooms = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert len(text) > 20
    # What gpflow_deep itself has besides its eight rooms are addresses that pages name.
    assert len(modules | rooms) <= (12 if room == "gpflow_deep" else 10), sorted(modules | rooms)
    assert not [name for name in sorted(modules | rooms) if not re.search(rf"\b{name}\b", text)]


def test_runs_know_of_data_only_what_rows_are() -> None:
    run = (ROOT / "gpflow_deep_runs" / "run").glob("*.py")
    data = {other for path in run for other in imported_modules(path) if other.startswith("gpflow_deep_runs.data")}
    assert data <= {"gpflow_deep_runs.data.rows"}


def test_no_circle_of_files() -> None:
    """Types apart: a function may say that its argument is of the class that calls it."""
    graph = {name: imported_modules(path, with_types=False) for name, path in MODULES.items()}
    for name in MODULES:  # a package's __init__ lists what its modules offer; they may not need it
        graph[name] -= {name.rpartition(".")[0]} if name.rpartition(".")[0] in MODULES else set()
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"files import one another in a circle: {' -> '.join(error.args[1])}", pytrace=False)


def test_flags_are_made_by_the_command_line_alone() -> None:
    files = [path for path in CODE if path.parent != ROOT / "gpflow_deep_runs" / "cli"]
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in files
        for line in violations(path.read_text(encoding="utf-8"), {"absl.flags", "absl.app"})
    ]
    assert not wrong


def private_uses(source: str) -> list[str]:
    """Private names of our modules that a file imports, or takes from one that it imports."""
    tops, names, found = {*PAPERS, GROUND, "gpflow_deep_runs"}, set(), []
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in tops:
            names |= {alias.asname or alias.name for alias in node.names}
            found += [f"{node.lineno}: {alias.name}" for alias in node.names if is_private(alias.name)]
        elif isinstance(node, ast.Import):
            names |= {a.asname or a.name.split(".")[0] for a in node.names if a.name.split(".")[0] in tops}
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_private(node.attr)]
    for node in uses:
        of = node.value.id if isinstance(node.value, ast.Name) else ""
        if of in names and of[:1].islower():  # a module; classes have private names, too
            found.append(f"{node.lineno}: {of}.{node.attr}")
    return found


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("package", PRESENT)
def test_savers_take_the_model_first_and_the_path_second(package: str) -> None:
    wrong = []
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and re.match("save|export|pack", node.name):
                names = [argument.arg for argument in node.args.args]
                if "path" in names and names.index("path") != 1:
                    wrong.append(f"{path.name}:{node.lineno} {node.name}")
    assert wrong == []


NOT_TURNED = {
    "gpflow_deep_runs/run/loop.py:fit",  # what happens at each step: functions of a program, which no user gives
}


def settings_of(source: str) -> Iterator[tuple[str, int]]:
    """Functions, methods and dataclasses, and how many of their parameters people may turn: those with a default, but
    groups of others."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(args=args):
                yield node.name, sum(_is_turned(default) for default in (*args.defaults, *args.kw_defaults))
            case ast.ClassDef(body=body) if any("dataclass" in ast.unparse(each) for each in node.decorator_list):
                yield node.name, sum(isinstance(part, ast.AnnAssign) and _is_turned(part.value) for part in body)


def _is_turned(default: ast.expr | None) -> bool:
    return default is not None and not re.fullmatch(r"[A-Z]\w*\(\)", ast.unparse(default))


@pytest.mark.parametrize("package", [*PRESENT, GROUND, "gpflow_deep_runs"])
def test_people_turn_at_most_fifteen_parameters(package: str) -> None:
    """The rest is in a group, such as `training=TrainingConfig(...)`."""
    found = {
        f"{path.relative_to(ROOT)}:{name}": count
        for path in sorted((ROOT / package).rglob("*.py"))
        for name, count in settings_of(path.read_text(encoding="utf-8"))
    }
    assert found
    assert {name: count for name, count in found.items() if count > 15 and name not in NOT_TURNED} == {}


def test_the_check_counts_what_has_a_default() -> None:
    source = "@dataclass\nclass A:\n    a: int\n    b: int = 1\n    c: B = B()\n\ndef f(a, b=1, *, c, d=2):\n    pass\n"
    assert dict(settings_of(source)) == {"A": 1, "f": 2}


def test_no_private_name_of_another_module() -> None:
    wrong = [f"{path.relative_to(ROOT)}:{use}" for path in CODE for use in private_uses(path.read_text("utf-8"))]
    assert not wrong


@pytest.mark.parametrize(
    "source",
    [
        "from darn.model.model import _x",
        "from darn import model\nmodel._x()",
        "import ebp\nebp._x",
        "import darn as d\nd._x",
    ],
)
def test_the_check_finds_private_names(source: str) -> None:
    assert len(private_uses(source)) == 1


# What an import costs


def result_of(program: str) -> Any:
    """What the last line of a Python program prints, as JSON, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_gpflow_deep_adds_little_to_gpflow() -> None:
    """A small part of the CPU time that GPflow takes in the same process, and few modules besides."""
    of_gpflow, of_ours, names = result_of("""
import json, sys, time
start = time.process_time()
import gpflow
middle, before = time.process_time(), set(sys.modules)
import gpflow_deep
for name in gpflow_deep.__all__:
    getattr(gpflow_deep, name)
print(json.dumps([middle - start, time.process_time() - middle, sorted(set(sys.modules) - before)]))
""")
    others = [name for name in names if name.split(".")[0] not in ("gpflow_deep", GROUND)]
    assert {name.split(".")[0] for name in others} <= {"lazy_loader", "scipy", "sklearn"}
    assert len(others) < 60, others
    assert of_ours <= 0.2 * of_gpflow


def test_papers_without_gaussian_processes_import_no_gpflow() -> None:
    found = result_of("""
import importlib, json, pkgutil, sys
for package in map(importlib.import_module, ("compression", "rbm_tracking", "darn", "ebp")):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
print(json.dumps("gpflow" in sys.modules))
""")
    assert found is False


NUMPY_ALONE = ["gpflow_deep", "darn", "compression"]
NUMPY_ALONE += ["ebp", "ebp.network.coding", "ebp.packed.export", "ebp.packed.packed", "ebp.packed.popcount"]
NUMPY_ALONE += ["rbm_tracking", "rbm_tracking.track.evidence", "rbm_tracking.track.partition_tracker"]
NUMPY_ALONE += ["rbm_tracking.model.checks"]


@pytest.mark.parametrize("module", NUMPY_ALONE)
def test_what_is_numpy_alone_imports_no_tensorflow(module: str) -> None:
    assert result_of(f"import json, sys, {module}; print(json.dumps('tensorflow' in sys.modules))") is False


def test_packages_whose_parts_come_later_show_all_of_them() -> None:
    """`dir`, the star, and each name, which is where the stub says."""
    packages = tuple(PRESENT)
    found = result_of(f"""
import importlib, json
found = {{}}
for package in map(importlib.import_module, {packages!r}):
    shown, names = dir(package), {{}}
    exec(f"from {{package.__name__}} import *", names)
    values = {{name: getattr(package, name) for name in shown}}
    homes = {{name: getattr(value, "__module__", None) for name, value in values.items()}}
    homes = {{name: home for name, home in homes.items() if getattr(values[name], "__name__", name) == name}}
    found[package.__name__] = shown, sorted(set(names) - {{"__builtins__"}}), homes
print(json.dumps(found))
""")
    for package in packages:
        stub = ast.parse((ROOT / package / "__init__.pyi").read_text(encoding="utf-8"))
        said = {
            alias.name: f"{package}.{node.module}" if node.module else None
            for node in stub.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        shown, by_star, homes = found[package]
        by_name = {"keras"} if package == "gpflow_deep" else set()  # a star does not import it
        assert sorted(shown) == sorted({*by_star, *by_name}) == sorted(said)
        defined = {name: home for name, home in homes.items() if home is not None and not home.startswith("typing")}
        assert {name: said[name] for name in defined} == defined


# Scripts

SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))


def test_all_scripts_share_a_process_and_explain_every_flag() -> None:
    """They are imported beside one another, define nothing global, and no field of their flags lacks its meaning."""
    program = f"""
import dataclasses, importlib.util, inspect, typing
from absl import flags
from gpflow_deep_runs.cli.flags import help_text, named_flags, parse
before, scripts = set(flags.FLAGS), {{}}
for path in {[str(path) for path in SCRIPTS]!r}:
    spec = importlib.util.spec_from_file_location(path.rsplit("/", 1)[1][:-3], path)
    scripts[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
ours = {{name for name in flags.FLAGS if "/scripts/" in str(flags.FLAGS.find_module_defining_flag(name))}}
assert not ours, ours
commands = {{
    f"{{name}} {{command}}": main
    for name, script in scripts.items()
    for command, main in getattr(script, "COMMANDS", {{"": getattr(script, "main", None)}}).items()
}}
for name, main in commands.items():
    (parameter,) = inspect.signature(main).parameters
    kind = typing.get_type_hints(main)[parameter]
    found = list(named_flags(kind))
    text = help_text(kind, name)
    names = {{word.rstrip(",") for word in text.split()}}
    assert all({{f"--{{flag.name}}", f"--[no]{{flag.name}}"}} & names for flag in found)
    unexplained = [flag.name for flag in found if len(flag.help.split()) < 2]
    assert not unexplained, (name, unexplained)
    names = [flag.name for flag in found]
    assert len(set(names)) == len(names), (name, names)
from tests.golden.cases import CASES
for call in (call for case in CASES for call in case.calls):
    (parameter,) = inspect.signature(main := commands[f"{{call.script}} {{call.command}}"]).parameters
    parse(typing.get_type_hints(main)[parameter], call.flags.split(), call.script)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]

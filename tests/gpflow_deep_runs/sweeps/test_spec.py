import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpflow_deep_runs.sweeps import expand
from gpflow_deep_runs.sweeps.spec import Column, Number, parse, read

FILE = """
script = "train_dgp.py"

[flags]
num_steps = 5000
valid_fraction = 0.5
ard = false
hidden = [20, 10]

[axes]
dataset = ["boston", "energy"]
split = [0, 1, 2]

[settings]
dgp2 = {num_layers = 2, compare = "gp,linear"}
dgp3 = {num_layers = 3, compare = ""}

[table]
baseline = "GP"
[table.columns]
GP = {setting = "dgp2", model = "gp"}
DGP3 = {setting = "dgp3", model = "dgp"}
[table.numbers]
"test RMSE" = "models.{model}.test.rmse"
seconds = {path = "wall_seconds", digits = 0, differences = false}
"""


def test_what_the_file_says() -> None:
    sweep = parse(FILE)
    assert sweep == parse(FILE.replace("train_dgp.py", "train"))._replace(text=FILE)
    assert sweep.script == "train_dgp.py"
    assert sweep.flags == {"num_steps": 5000, "valid_fraction": 0.5, "ard": False, "hidden": (20, 10)}
    assert sweep.axes == {"dataset": ("boston", "energy"), "split": (0, 1, 2)}
    assert list(sweep.settings) == ["dgp2", "dgp3"]
    assert sweep.settings["dgp3"] == {"num_layers": 3, "compare": ""}
    assert sweep.tables is not None
    assert sweep.tables.numbers == (
        Number("test RMSE", "models.{model}.test.rmse"),
        Number("seconds", "wall_seconds", digits=0, has_differences=False),
    )
    assert sweep.tables.columns == (Column("GP", "dgp2", {"model": "gp"}), Column("DGP3", "dgp3", {"model": "dgp"}))
    assert sweep.tables.over == ("split",)
    assert sweep.tables.baseline == "GP"
    assert sweep.text == FILE


def test_only_the_script_is_needed() -> None:
    sweep = parse('script = "train_dgp.py"')
    assert (sweep.flags, sweep.axes, sweep.settings, sweep.tables) == ({}, {}, {"": {}}, None)


def test_columns_are_the_settings_if_there_are_none() -> None:
    text = 'script = "a.py"\n[settings]\nx = {a = 1}\ny = {a = 2}\n[table.numbers]\nscore = "score"\n'
    tables = parse(text).tables
    assert tables is not None
    assert tables.columns == (Column("x", "x", {}), Column("y", "y", {}))
    alone = parse('script = "a.py"\n[table.numbers]\nscore = "score"\n').tables
    assert alone is not None
    assert alone.columns == (Column("result", "", {}),)


def replaced(old: str, new: str) -> str:
    assert FILE.count(old) == 1
    return FILE.replace(old, new)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            replaced("num_steps = 5000", 'data = "a\\n--run_dir=/tmp/x"'),
            r"\[flags\]: data must be in one line without control characters, got 'a\\n--run_dir=/tmp/x'",
        ),
        (
            replaced("num_steps = 5000", 'ignore = ["a", "b\\u2028c"]'),
            r"\[flags\]: ignore must be in one line without control characters",
        ),
        ("script = ", "must be TOML, but: Invalid value"),
        (replaced("[flags]", "[flag]"), "the file has no 'flag'; it may have script, flags, axes, settings, table"),
        (replaced('script = "train_dgp.py"', ""), "script must be a verb of gpflow-deep.*got None"),
        (replaced("train_dgp.py", "../train_dgp.py"), "script must be a verb of gpflow-deep.*got '../train_dgp.py'"),
        (replaced("train_dgp.py", "train_dgp"), "script must be a verb"),
        (replaced("num_steps = 5000", "num_steps = 5000\nnum_steps = 3"), "must be TOML, but: .*overwrite"),
        (replaced("num_steps = 5000", "--num_steps = 5000"), "names of flags without their dashes, got '--num_steps'"),
        (replaced("num_steps = 5000", "run_dir = 'x'"), r"\[flags\] must not have run_dir: the sweep gives it"),
        (
            replaced("num_steps = 5000", "num_steps = 2026-01-01"),
            "num_steps must be a number, text, true, false or a list",
        ),
        (replaced("num_steps = 5000", "num_steps = nan"), "num_steps must be a number, text, .*got nan"),
        (replaced("num_steps = 5000", "num_steps = {a = 1}"), "num_steps must be a number, text, .*got {'a': 1}"),
        (
            replaced("split = [0, 1, 2]", "split = 0"),
            r"axes.split must list at least one value, as split = \[0, 1\], got 0",
        ),
        (replaced("split = [0, 1, 2]", "split = []"), "axes.split must list at least one value"),
        (replaced("split = [0, 1, 2]", "split = [0, 1, 0]"), "axes.split has 0 twice; leave one"),
        (replaced("num_steps = 5000", "split = 5000"), r"split is an axis, and also in \[flags\]"),
        (replaced("num_layers = 3,", "split = 3,"), "split is an axis, and also in settings.dgp3"),
        (replaced('dgp3 = {num_layers = 3, compare = ""}', "dgp3 = 3"), "settings.dgp3 must be a table of names"),
        (replaced("[settings]", "[settings]\n[other]"), "the file has no 'other'"),
        (replaced('baseline = "GP"', 'base = "GP"'), r"\[table\] has no 'base'; it may have numbers, columns, over"),
        (replaced('baseline = "GP"', 'baseline = "gp"'), "table.baseline must be a column, one of GP, DGP3, got 'gp'"),
        (replaced('baseline = "GP"', 'baseline = ["GP"]'), r"table.baseline must be a column, .*got \['GP'\]"),
        (replaced('setting = "dgp2", model', 'setting = ["dgp2"], model'), r"must have a setting .*got \['dgp2'\]"),
        (
            replaced('baseline = "GP"', 'over = ["seed"]'),
            r"table.over must list axes, .*of dataset, split, got \['seed'\]",
        ),
        (replaced('baseline = "GP"', 'over = "split"'), "table.over must list axes"),
        (replaced('baseline = "GP"', 'over = ["split", "split"]'), "table.over must list axes, each once"),
        (replaced('"dgp2", model', '"dgp4", model'), "table.columns.GP must have a setting .* dgp2, dgp3, got 'dgp4'"),
        (replaced('setting = "dgp2", ', ""), "table.columns.GP must have a setting of the file, .*got None"),
        (replaced('model = "gp"', "model = 1"), "table.columns.GP: model must be text, got 1"),
        (replaced('model = "gp"', 'name = "gp"'), "table.columns.GP must say what {model} is in .*as model = "),
        (replaced("{model}", "{model"), "has braces that do not fit"),
        (replaced("{model}", "{}"), r"{} in .*must hold a name, as {model}"),
        (replaced("{model}", "{model.x}"), "must hold a name, as {model}"),
        (
            replaced('"models.{model}.test.rmse"', "3"),
            'table.numbers."test RMSE" must be a path of result.json, or a table',
        ),
        (replaced('"models.{model}.test.rmse"', '"a..b"'), "must have keys of result.json with dots between them"),
        (replaced("digits = 0", "digits = 1.5"), "digits must be a whole number from 0 to 15, got 1.5"),
        (replaced("digits = 0", "digits = true"), "digits must be a whole number"),
        (replaced("differences = false", 'differences = "no"'), "differences must be true or false, got 'no'"),
        (replaced("digits = 0", "decimals = 0"), "has no 'decimals'; it may have path, digits, differences"),
        ('script = "a.py"\n[table]\n', r"\[table.numbers\] must be a table of names and values, got None"),
        ('script = "a.py"\n[table.numbers]\n', r"\[table.numbers\] must name at least one number"),
        ('script = "a.py"\n[settings]\n', r"\[settings\] must have at least one setting"),
        ('script = "a.py"\nflags = 3\n', r"\[flags\] must be a table of names and values, got 3"),
    ],
)
def test_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_errors_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("x = 1")
    with pytest.raises(ValueError, match=r"a\.toml: the file has no 'x'"):
        read(tmp_path / "a.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"b\.toml must be text in UTF-8"):
        read(tmp_path / "b.toml")
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "c.toml")


def test_sweeps_do_without_tensorflow() -> None:
    """A notebook imports them, and each start of a job should not wait."""
    heavy = "{'tensorflow', 'pandas', 'matplotlib'}"
    program = (
        f"import gpflow_deep_runs.sweeps, gpflow_deep_runs.sweeps.progress, sys; assert not {heavy} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_files_of_the_documentation_and_of_the_results_can_be_read() -> None:
    root = Path(__file__).resolve().parents[3]
    shown = re.findall(r"^```toml\n(.*?)^```", (root / "docs" / "sweeps.md").read_text(encoding="utf-8"), re.S | re.M)
    kept = [path.read_text(encoding="utf-8") for path in sorted((root / "results" / "sweeps").glob("*.toml"))]
    assert len(shown) == 1
    assert len(kept) >= 1
    for text in [*shown, *kept]:
        assert len(expand(parse(text))) > 1

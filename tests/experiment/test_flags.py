"""experiment.flags: the common flags, their text form, and the number of threads."""

import subprocess
import sys
from pathlib import Path

import pytest
from absl import flags

from experiment.flags import apply_threads, define_common_flags, flags_text
from experiment.run_dir import FREE_ON_RESUME, open_run


def parse(*arguments: str) -> flags.FlagValues:
    values = flags.FlagValues()
    define_common_flags(values)
    flags.DEFINE_integer("num_layers", 2, "Own flag of a script.", flag_values=values)
    flags.DEFINE_multi_string("kernel", ["rbf"], "Own flag of a script.", flag_values=values)
    values(["script", *arguments])
    return values


def test_run_dir_is_required() -> None:
    with pytest.raises(flags.IllegalFlagValueError, match="--run_dir"):
        parse()
    assert parse("--run_dir=r").run_dir == "r"


@pytest.mark.parametrize(
    "argument",
    [
        "--split=-1", "--num_steps=0", f"--num_steps={2**31}", "--batch_size=0", "--log_every=0", "--eval_every=0",
        "--checkpoint_every=0", "--max_seconds=-1", "--threads=-1", "--task=cluster", "--seed=1.5", "--float32=maybe",
    ],
)  # fmt: skip
def test_values_out_of_range_name_the_flag(argument: str) -> None:
    with pytest.raises(flags.IllegalFlagValueError, match=argument.split("=")[0].lstrip("-")):
        parse("--run_dir=r", argument)


def test_dataset_and_data_exclude_each_other() -> None:
    with pytest.raises(flags.IllegalFlagValueError, match="dataset"):
        parse("--run_dir=r", "--dataset=boston", "--data=x.csv")


def test_defining_them_twice_is_an_error() -> None:
    values = flags.FlagValues()
    flags.DEFINE_integer("seed", 1, "A flag of the script.", flag_values=values)
    with pytest.raises(flags.DuplicateFlagError, match="seed"):
        define_common_flags(values)


def test_free_flags_exist() -> None:
    assert {*parse("--run_dir=r"), "flagfile"} >= FREE_ON_RESUME


def test_text_repeats_the_run(tmp_path: Path) -> None:
    """--flagfile=flags.txt --run_dir=NEW gives the same values, whatever they are."""
    arguments = ["--dataset=boston", "--seed=-7", "--float32", "--noprogress", "--max_seconds=1e-3", "--num_layers=5",
                 "--kernel=rbf", "--kernel=matern 5/2", "--data_dir=/a b/#c=d"]  # fmt: skip
    given = parse("--run_dir=first", "--resume", *arguments)
    text = flags_text(given)
    for name in ("run_dir", "resume", "flagfile", "target"):
        assert f"--{name}" not in text
    (tmp_path / "flags.txt").write_text(text)
    again = parse(f"--flagfile={tmp_path / 'flags.txt'}", "--run_dir=second")
    assert flags_text(again) == text
    expected = {**given.flag_values_dict(), "run_dir": "second", "resume": False}
    assert again.flag_values_dict() == expected


def test_text_fits_open_run(tmp_path: Path) -> None:
    record = {"data_sha256": "abc"}
    open_run(tmp_path, flags_text=flags_text(parse("--run_dir=r")), provenance=record, resume=False)
    free = parse("--run_dir=other", "--resume", "--num_steps=5", "--threads=1", "--noprogress", "--max_seconds=3")
    open_run(tmp_path, flags_text=flags_text(free), provenance=record, resume=True)
    other = parse("--run_dir=r", "--resume", "--batch_size=5", "--kernel=linear")
    with pytest.raises(ValueError, match=r"--batch_size=10000 is now --batch_size=5; --kernel=rbf is now --kernel=lin"):
        open_run(tmp_path, flags_text=flags_text(other), provenance=record, resume=True)


def test_a_script_as_a_user_calls_it(tmp_path: Path) -> None:
    """With the global FLAGS: flags of absl stay out, one thread is used, and a late call is an error."""
    script = tmp_path / "script.py"
    script.write_text("""
import tensorflow as tf
from absl import app, flags
from experiment.flags import apply_threads, define_common_flags, flags_text
define_common_flags()
flags.DEFINE_boolean("own", False, "Own flag.")
flags.FLAGS.set_default("num_steps", 50)
def main(argv):
    apply_threads(flags.FLAGS.threads)
    print(flags_text(), end="")
    assert tf.config.threading.get_intra_op_parallelism_threads() == 1
    assert tf.config.threading.get_inter_op_parallelism_threads() == 1
    tf.constant(0.0)
    try:
        apply_threads(3)
    except ValueError as error:
        print(error)
app.run(main)
""")
    command = [sys.executable, str(script), "--run_dir=r", "--threads=1", "--own", "--verbosity=0"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.splitlines()
    assert output == [
        "--batch_size=10000", "--checkpoint_every=1000", "--eval_every=1000", "--log_every=100", "--nofloat32",
        "--num_steps=50", "--own", "--progress", "--seed=0", "--split=0", "--threads=1",
        "--threads=3 came too late; call apply_threads before any tensor is made.",
    ]  # fmt: skip


def test_bad_threads() -> None:
    apply_threads(0)  # changes nothing, so it is never too late
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        apply_threads(-1)

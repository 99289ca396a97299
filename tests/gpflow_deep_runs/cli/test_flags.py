"""gpflow_deep_runs.cli.flags: dataclasses from the command line, and back."""

import dataclasses
import inspect
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from absl import flags as absl_flags

from gpflow_deep_base.numbers.groups import grouped
from gpflow_deep_runs.cli.flags import HelpWanted, Later, changed, group, named_flags, parse, positional, text
from gpflow_deep_runs.data.views import Source
from gpflow_deep_runs.run import Devices, Settings
from gpflow_deep_runs.run.folder import open_folder


@dataclass(frozen=True)
class Local:
    """Parts of a model.

    :param sizes: size of each kernel, from the image up.
    :param stride: rows between two kernels.
    """

    sizes: tuple[int, ...] = (8, 4)
    stride: int = 2

    def __post_init__(self) -> None:
        if self.stride < 1:
            raise ValueError(f"stride must be at least 1, got {self.stride}.")


@dataclass(frozen=True)
class Model:
    """A model that can only be built when the data are known.

    :param visible: number of inputs, which no flag says.
    :param hidden: sizes of the hidden layers.
    :param local: parts.
    """

    visible: int
    hidden: tuple[int, ...] = (500,)
    local: Local = Local()


@dataclass(frozen=True)
class Training:
    """How to train.

    :param learning_rate: of Adam.
    :param momentum: 0 is a value, and not "not given".
    :param jit: compile it.
    """

    learning_rate: float = 0.01
    momentum: float = 0.5
    jit: bool = True


@dataclass(frozen=True)
class Flags:
    """Train a model.

    A second paragraph, with a word: and a colon.

    :param name: what it is called; it must be
        given.
    :param kernel: covariance
        function; "" for none.
    :param prior: none of them if not given.
    :param seed: of all randomness.
    :param scale: any number.
    :param rates: one for each
        layer: from the data up.
    :param columns: names.
    :param limit: rows; all of them if not given.
    :param is_exact: not decided if not given.
    :returns: nothing.
    """

    name: str
    training: Training = group(learning_rate=0.1)
    model: Later[Model] = group()
    local: Later[Local] = group(prefix="local_")
    top: Local = group(prefix="top_", omit=("stride",), stride=7)
    kernel: str = "rbf"
    prior: Literal["flat", "horseshoe"] | None = None
    method: Literal["adam", "sgd"] = "adam"
    seed: int = 0
    scale: float = 1.0
    rates: tuple[float, ...] = ()
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    is_exact: bool | None = None
    again: bool | Literal["auto"] = False


def parsed(*arguments: str) -> Flags:
    return parse(Flags, ["--name=a", *arguments], "train.py")


# ---------------------------------------------------------------------------------------------- from the command line


def test_defaults_are_those_of_the_fields_and_of_the_groups() -> None:
    flags = parsed()
    assert flags.name == "a"
    assert flags.training == Training(learning_rate=0.1)  # the group has another default than the dataclass
    assert flags.top == Local(stride=7)
    assert (flags.kernel, flags.prior, flags.method, flags.seed, flags.scale) == ("rbf", None, "adam", 0, 1.0)
    assert (flags.rates, flags.columns, flags.limit, flags.is_exact) == ((), None, None, None)


def test_each_flag_sets_its_field() -> None:
    flags = parsed(
        "--learning_rate=0.5", "--momentum=0", "--nojit", "--hidden=20,10", "--local_sizes=3", "--local_stride=1",
        "--top_sizes=5,6", "--kernel=matern", "--prior=flat", "--method=sgd", "--seed=-7", "--scale=-1e-3",
        "--rates=0.1,2", "--columns=x, y", "--limit=0", "--is_exact",
    )  # fmt: skip
    assert flags.training == Training(0.5, 0.0, jit=False)
    assert flags.model(visible=3) == Model(3, (20, 10))
    assert flags.local() == Local((3,), 1)
    assert flags.top == Local((5, 6), 7)
    assert (flags.kernel, flags.prior, flags.method, flags.seed, flags.scale) == ("matern", "flat", "sgd", -7, -1e-3)
    assert (flags.rates, flags.columns, flags.limit, flags.is_exact) == ((0.1, 2.0), ("x", "y"), 0, True)
    assert [type(value) for value in (flags.training.momentum, flags.limit, flags.rates[1])] == [float, int, float]


def test_the_names_of_flags() -> None:
    """Fields without a default, and what is no simple value, are no flags of a group that is made later; `omit` leaves
    out others. The order is that of the fields."""
    assert [flag.name for flag in named_flags(Flags)] == [
        "name", "learning_rate", "momentum", "jit", "hidden", "local_sizes", "local_stride", "top_sizes", "kernel",
        "prior", "method", "seed", "scale", "rates", "columns", "limit", "is_exact", "again",
    ]  # fmt: skip
    for absent in ("--visible=3", "--local=3", "--top_stride=3"):
        with pytest.raises(ValueError, match=f"Unknown command line flag '{absent[2:].split('=')[0]}'"):
            parsed(absent)


def test_later_gets_what_only_the_program_knows() -> None:
    flags = parsed("--hidden=4")
    assert flags.model.keywords == {"hidden": (4,)}
    assert flags.model(visible=2, local=flags.local(stride=3)) == Model(2, (4,), Local((8, 4), 3))
    with pytest.raises(TypeError, match="visible"):
        flags.model()
    with pytest.raises(ValueError, match="stride must be at least 1, got 0"):
        parsed("--local_stride=0").local()
    with pytest.raises(NotImplementedError, match="only an annotation"):
        Later[Local]()()


@pytest.mark.parametrize("given", [(), (5,), (5, 4, 3)])
def test_lists_of_any_length(given: tuple[int, ...]) -> None:
    for joined in {",".join(map(str, given)), ", ".join(map(str, given))}:
        assert parsed(f"--hidden={joined}").model(visible=1).hidden == given


def test_none_is_not_given_and_everything_else_a_value() -> None:
    assert parsed("--columns=").columns == ()
    assert parsed("--kernel=").kernel == ""
    assert parsed("--limit=0").limit == 0
    assert parsed("--nois_exact").is_exact is False
    assert parsed("--is_exact=true").is_exact is True
    assert parsed("--scale=inf").scale == math.inf


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("--again", True),
        ("--noagain", False),
        ("--again=auto", "auto"),
        ("--again=true", True),
        ("--again=false", False),
    ],
)
def test_yes_no_or_a_word(argument: str, value: object) -> None:
    assert parsed(argument).again == value
    assert parsed("--again=auto", argument).again == value


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--learning_rat=1", "Unknown command line flag 'learning_rat'. Did you mean: learning_rate ?; see --help."),
        ("--hid=1", "Unknown command line flag 'hid'"),  # no abbreviations
        ("--seed=1.5", "--seed=1.5"),
        ("--seed=", "--seed="),
        ("--scale=big", "--scale=big"),
        ("--scale=nan", "--scale must be a number, got nan."),
        ("--rates=1,nan", "--rates must be a number, got nan."),
        ("--rates=1,x", "--rates must list numbers, as --rates=8,4, got 1,x."),
        ("--hidden=1.5", "--hidden must list numbers, as --hidden=8,4, got 1.5."),
        ("--method=lbfgs", "--method=lbfgs: value should be one of <adam|sgd>"),
        ("--prior=none", "--prior=none: value should be one of <flat|horseshoe>"),
        ("--jit=maybe", "--jit=maybe"),
        ("--top_sizes=a", "--top_sizes must list numbers"),
        ("data.csv", "all arguments must be flags, --name=value, got 'data.csv'; see --help."),
        ("--kernel=a\nb", "--kernel must be in one line without control characters, got 'a\\nb'."),
        ("--columns=a,b\x1b[2J", "--columns must be in one line without control characters, got 'b\\x1b[2J'."),
        ("--kernel=a\u2028--seed=3", "--kernel must be in one line without control characters"),
        ("--kernel=a\udcff", "--kernel must be UTF-8, got 'a\\udcff'; give the file another name."),
        ("--again=perhaps", "--again=perhaps"),
        ("--flagfile=/absent/flags.txt", "--flagfile=/absent/flags.txt: no such file or directory."),
    ],
)
def test_what_is_wrong_is_named_in_one_line(argument: str, message: str) -> None:
    with pytest.raises(ValueError) as info:  # noqa: PT011 (the message is compared below)
        parsed(argument)
    assert message in str(info.value)
    assert "\n" not in str(info.value)
    assert "Errno" not in str(info.value)


def test_a_flag_that_must_be_given() -> None:
    with pytest.raises(ValueError, match=r"--name must be given; see --help\."):
        parse(Flags, [])
    with pytest.raises(ValueError, match=r"--run_dir must be given"):
        parse(Run, [])


# ---------------------------------------------------------------------------------------------- and back


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--learning_rate=1e-7", "--momentum=0", "--nojit", "--hidden=", "--local_sizes=1,2,3", "--top_sizes="],
        ["--kernel=", "--prior=horseshoe", "--seed=-7", "--scale=0.1000000000000000055511151231257827"],
        ["--rates=0.1,1e300,-inf", "--columns=", "--limit=0", "--nois_exact"],
        ["--kernel=/a b/#c=d", '--columns="a, b",c', "--is_exact", "--scale=-0.0"],
        ["--kernel=--seed=3", "--kernel=//host/share"],
        ["--again"],
        ["--again=auto"],
    ],
)
def test_text_makes_the_same_flags_again(tmp_path: Path, arguments: list[str]) -> None:
    """Through a file, as --flagfile=RUN/flags.txt does; a flag beside it has the last word."""
    flags = parsed(*arguments)
    (tmp_path / "flags.txt").write_text(text(flags))
    again = parse(Flags, [f"--flagfile={tmp_path / 'flags.txt'}"])
    assert fields_of(again) == fields_of(flags)
    assert text(again) == text(flags)
    assert parse(Flags, [f"--flagfile={tmp_path / 'flags.txt'}", "--seed=99"]).seed == 99


def fields_of(flags: Flags) -> dict[str, Any]:
    """With what will make the groups in place of their functions, which are equal to themselves alone."""
    made = {field.name: getattr(flags, field.name) for field in dataclasses.fields(flags)}
    return {name: dict(value.keywords) if hasattr(value, "keywords") else value for name, value in made.items()}


def test_text_is_one_flag_a_line_without_what_is_not_given() -> None:
    assert text(parsed("--nojit", "--columns=a,b")) == "\n".join(
        [
            "--columns=a,b",
            "--hidden=500",
            "--kernel=rbf",
            "--learning_rate=0.1",
            "--local_sizes=8,4",
            "--local_stride=2",
            "--method=adam",
            "--momentum=0.5",
            "--name=a",
            "--noagain",
            "--nojit",
            "--rates=",
            "--scale=1.0",
            "--seed=0",
            "--top_sizes=8,4",
            "",
        ]
    )


@dataclass(frozen=True)
class Run:
    """A program that makes a run.

    :param steps: own flag.
    """

    run: Settings = group(batch_size=100)
    devices: Devices = group()
    source: Source = group()
    steps: int = 3


def test_text_says_what_is_computed_not_where(tmp_path: Path) -> None:
    """So that --flagfile=OLD/flags.txt --run_dir=NEW repeats a run, and a resumed run has the text of the first."""
    one = parse(Run, ["--run_dir=first", "--resume", "--dataset=digits"])
    other = parse(Run, ["--run_dir=second", "--dataset=digits"])
    assert text(one) == text(other)
    assert "first" not in text(one)
    assert "resume" not in text(one)
    assert "--batch_size=100\n" in text(one)
    (tmp_path / "flags.txt").write_text(text(one))
    again = parse(Run, [f"--flagfile={tmp_path / 'flags.txt'}", "--run_dir=third"])
    assert again.run == dataclasses.replace(one.run, run_dir="third", resume=False)


def test_text_fits_open_folder(tmp_path: Path) -> None:
    record = {"data_sha256": "abc"}
    given = ["--run_dir=r", "--dataset=digits"]
    open_folder(tmp_path, flags_text=text(parse(Run, given)), provenance=record, resume=False)
    free = ["--resume", "--num_steps=5", "--threads=1", "--noprogress", "--max_seconds=3", "--data_dir=/moved"]
    open_folder(tmp_path, flags_text=text(parse(Run, [*given, *free])), provenance=record, resume=True)
    other = parse(Run, [*given, "--resume", "--batch_size=5", "--steps=4"])
    with pytest.raises(ValueError, match=r"--batch_size=100 is now --batch_size=5; --steps=3 is now --steps=4"):
        open_folder(tmp_path, flags_text=text(other), provenance=record, resume=True)


# ---------------------------------------------------------------------------------------------- two of one name


@dataclass(frozen=True)
class Twice:
    """Two groups with the same fields."""

    one: Local = group()
    other: Local = group()


@dataclass(frozen=True)
class Own:
    """A field with the name of one of a group."""

    one: Local = group()
    stride: int = 3


@dataclass(frozen=True)
class Prefixed:
    """Two groups that a prefix tells apart."""

    one: Local = group(prefix="one_")
    other: Local = group()


@pytest.mark.parametrize(("kind", "name"), [(Twice, "sizes"), (Own, "stride")])
def test_two_fields_of_one_name_are_an_error(kind: type, name: str) -> None:
    with pytest.raises(ValueError, match=f"two fields are the flag --{name}; give the group of one of them a prefix"):
        parse(kind, [])


def test_programs_in_one_process_do_not_see_each_other() -> None:
    """Nothing is global: the same name has another type and default in each, also when one is parsed again."""
    before = set(absl_flags.FLAGS)
    assert parse(Prefixed, ["--stride=6"]).other.stride == 6
    assert parse(Flags, ["--name=x", "--scale=2"]).scale == 2.0
    assert parse(Prefixed, []).other.stride == 2
    assert parse(Run, ["--run_dir=r"]).steps == 3
    assert set(absl_flags.FLAGS) == before


def test_flags_of_absl() -> None:
    """Only if they are asked for; a program's own flag of that name comes first."""
    with pytest.raises(ValueError, match="Unknown command line flag 'verbosity'"):
        parse(Prefixed, ["--verbosity=1"])
    stored = absl_flags.FLAGS["verbosity"].value
    try:
        parse(Prefixed, ["--verbosity=-1"], with_absl=True)
        assert absl_flags.FLAGS["verbosity"].value == -1
        assert parse(Verbose, ["--verbosity=high"], with_absl=True).verbosity == "high"
        assert absl_flags.FLAGS["verbosity"].value == -1
    finally:
        absl_flags.FLAGS["verbosity"].unparse()
    assert absl_flags.FLAGS["verbosity"].value == stored


@dataclass(frozen=True)
class Verbose:
    """A program with a flag that absl has, too.

    :param verbosity: its own.
    """

    verbosity: str = "low"


# ---------------------------------------------------------------------------------------------- help


def test_help_lists_every_flag_with_its_default_and_meaning() -> None:
    with pytest.raises(HelpWanted) as info:
        parse(Flags, ["--help"], "train.py")
    assert str(info.value) == inspect.cleandoc("""
        train.py: Train a model.

        A second paragraph, with a word: and a colon.

          --name (required)
              what it is called; it must be given.
          --learning_rate (0.1)
              of Adam.
          --momentum (0.5)
              0 is a value, and not "not given".
          --[no]jit (True)
              compile it.
          --hidden (500)
              sizes of the hidden layers.
          --local_sizes (8,4)
              size of each kernel, from the image up.
          --local_stride (2)
              rows between two kernels.
          --top_sizes (8,4)
              size of each kernel, from the image up.
          --kernel (rbf)
              covariance function; "" for none.
          --prior (one of flat, horseshoe; not set)
              none of them if not given.
          --method (one of adam, sgd; adam)
          --seed (0)
              of all randomness.
          --scale (1.0)
              any number.
          --rates (empty)
              one for each layer: from the data up.
          --columns (not set)
              names.
          --limit (not set)
              rows; all of them if not given.
          --[no]is_exact (not set)
              not decided if not given.
          --[no]again, --again=auto (False)

          --flagfile=FILE reads flags from a file; --helpfull lists those of absl, too.
    """)


def test_help_is_wrapped() -> None:
    @dataclass(frozen=True)
    class Long:
        """Long.

        :param long: one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
            seventeen eighteen nineteen twenty.
        """

        long: int = 1

    with pytest.raises(HelpWanted) as info:
        parse(Long, ["--help"])
    lines = str(info.value).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.strip() for line in lines[3:5]] == [
        "one two three four five six seven eight nine ten eleven twelve thirteen",
        "fourteen fifteen sixteen seventeen eighteen nineteen twenty.",
    ]


@dataclass(frozen=True)
class WithFile:
    """A program for a file.

    :param file: what to read.
    :param count: how often.
    """

    file: str = positional()
    count: int = 1


@pytest.mark.parametrize(
    "arguments", [["a.toml", "--count=3"], ["--count=3", "a.toml"], ["--file=a.toml", "--count=3"]]
)
def test_one_flag_may_be_given_without_its_name(arguments: list[str]) -> None:
    assert parse(WithFile, arguments) == WithFile("a.toml", 3)
    assert text(parse(WithFile, arguments)) == "--count=3\n--file=a.toml\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--file must be given; see --help."),
        (["a.toml", "b.toml"], "all arguments must be flags, --name=value, got 'b.toml'"),
        (["--file=a.toml", "b.toml"], "all arguments must be flags, --name=value, got 'b.toml'"),
        (["a.toml", "--cuont=3"], "Unknown command line flag 'cuont'"),
    ],
)
def test_a_flag_without_its_name_is_given_once(arguments: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(WithFile, arguments)


@grouped
@dataclass(frozen=True)
class InGroups:
    """Fields, some of which stand in a group."""

    depth: int = 1
    local: Local = Local()


@dataclass(frozen=True)
class GroupedFlags:
    """Flags of such fields.

    :param name: what it is called.
    """

    now: InGroups = group(prefix="now_", stride=3)
    later: Later[InGroups] = group(omit=("sizes",))
    name: str = ""


def test_flags_of_fields_in_groups_have_the_names_of_the_fields() -> None:
    assert [flag.name for flag in named_flags(GroupedFlags)] == [
        "now_depth", "now_sizes", "now_stride", "depth", "stride", "name",
    ]  # fmt: skip
    flags = parse(GroupedFlags, ["--now_sizes=5", "--stride=4"], "train.py")
    assert flags.now == InGroups(local=Local((5,), 3))
    assert flags.later(depth=2) == InGroups(2, Local(stride=4))
    assert parse(GroupedFlags, text(flags).split(), "train.py").now == flags.now
    assert changed(flags) == "--now_sizes=5\n--stride=4\n"
    with pytest.raises(ValueError, match="stride must be at least 1, got 0"):
        parse(GroupedFlags, ["--stride=0"], "train.py")

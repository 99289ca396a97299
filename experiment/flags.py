"""Flags that every training script has. A script changes a default with `FLAGS.set_default(name, value)`."""

import tensorflow as tf
from absl import flags

__all__ = ["apply_threads", "define_common_flags", "flags_text"]

_NOT_STORED = {"resume", "run_dir", "flagfile"}


def define_common_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Define the common flags; call it once, at the top of a script.

    :param flag_values: where to define them; a test gives its own `flags.FlagValues()`.
    :raises absl.flags.DuplicateFlagError: if the script defines one of them too.
    """
    fv = flag_values
    flags.DEFINE_string("run_dir", None, "Folder of the run; new or empty, or an earlier run with --resume.", fv)
    flags.DEFINE_boolean("resume", False, "Continue the run in --run_dir from its newest checkpoint.", fv)
    flags.DEFINE_string("dataset", None, "Name of a known data set.", fv)
    flags.DEFINE_string("data_dir", None, "Folder with the files of the known data sets.", fv)
    flags.DEFINE_string("data", None, "Own data: a .csv, .csv.gz, .parquet or .npz file, in place of --dataset.", fv)
    flags.DEFINE_string("target", None, "Column of --data to predict.", fv)
    tasks = ["regression", "binary", "multiclass"]
    flags.DEFINE_enum("task", None, tasks, "What --target is; found out from the column if not given.", fv)
    flags.DEFINE_integer("split", 0, "Number of the train/test split.", 0, flag_values=fv)
    flags.DEFINE_integer("seed", 0, "Seed of all randomness except the split.", flag_values=fv)
    flags.DEFINE_integer("num_steps", 20_000, "Number of parameter updates.", 1, 2**31 - 1, flag_values=fv)
    flags.DEFINE_integer("batch_size", 10_000, "Rows in a minibatch; all rows if there are fewer.", 1, flag_values=fv)
    flags.DEFINE_boolean("float32", False, "Compute in float32; faster on a GPU, but float64 is safer.", fv)
    flags.DEFINE_integer("log_every", 100, "Steps between lines of training scalars.", 1, flag_values=fv)
    flags.DEFINE_integer("eval_every", 1_000, "Steps between evaluations on validation data.", 1, flag_values=fv)
    flags.DEFINE_integer("checkpoint_every", 1_000, "Steps between checkpoints.", 1, flag_values=fv)
    flags.DEFINE_float("max_seconds", None, "Stop and save a checkpoint after this time.", 0.0, flag_values=fv)
    flags.DEFINE_boolean("progress", True, "Show a progress bar if standard error is a terminal.", fv)
    flags.DEFINE_integer("threads", 0, "CPU threads; 0 lets TensorFlow choose.", 0, flag_values=fv)
    flags.mark_flag_as_required("run_dir", flag_values=fv)
    flags.mark_flags_as_mutual_exclusive(["dataset", "data"], flag_values=fv)


def flags_text(flag_values: flags.FlagValues = flags.FLAGS) -> str:
    """The script's own and the common flags with their values, one a line, for `run_dir.open_run`.

    Leaves out flags that are not set, those of absl and TensorFlow, and `--run_dir`, `--resume`, `--flagfile`, so that
    `--flagfile=run/flags.txt --run_dir=NEW` repeats the run.
    """
    lines = [
        flag.serialize()
        for module, module_flags in sorted(flag_values.flags_by_module_dict().items())
        if module.split(".")[0] not in ("absl", "tensorflow")
        for flag in module_flags
        if flag.name not in _NOT_STORED and flag.value is not None
    ]
    return "\n".join(sorted(filter(None, lines))) + "\n"


def apply_threads(threads: int) -> None:
    """Let TensorFlow use `threads` CPU threads within an operation and between operations; 0 changes nothing.

    :raises ValueError: if `threads` is negative, or TensorFlow has started already with another number.
    """
    if threads < 0:
        raise ValueError(f"--threads must not be negative, got {threads}; 0 lets TensorFlow choose.")
    if threads == 0:
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    except RuntimeError as error:
        raise ValueError(f"--threads={threads} came too late; call apply_threads before any tensor is made.") from error

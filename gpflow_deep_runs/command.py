"""The command `gpflow-deep VERB --flag=value ...`: one name for all scripts, of which it imports the one it calls."""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import sys

from gpflow_deep_runs.cli.output import print_asked_for
from gpflow_deep_runs.verbs import VERBS, script_of

__all__ = ["main"]

MEANT = {"dgp": "train", "fit": "train", "gp": "train", "learn": "train"}
"""Words that are like no verb, or like another one, and what they mean."""


def usage() -> str:
    """What `gpflow-deep --help` prints."""
    width = max(map(len, VERBS))
    lines = [f"  {verb.ljust(width)}  {purpose}" for verb, (_, purpose) in VERBS.items()]
    first = "gpflow-deep VERB --flag=value ...: deep probabilistic models from the shell"
    last = "gpflow-deep VERB --help lists the flags of one; gpflow-deep --version."
    return "\n".join([first, "", *lines, "", last])


def main() -> None:
    """Call the script of the verb that the command line begins with.

    :raises SystemExit: with what the script ends with; with 2 where there is no such verb.
    """
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    # What needs no script: help, the version, and a verb that does not exist.
    if verb in ("", "--help", "-h", "help"):
        print_asked_for(usage())
        raise SystemExit(0 if verb else 2)
    if verb == "--version":
        print_asked_for(importlib.metadata.version("gpflow-deep"))
        raise SystemExit(0)
    if verb not in VERBS:
        near = [MEANT[verb]] if verb in MEANT else difflib.get_close_matches(verb, VERBS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"say one of {', '.join(VERBS)}."
        print(f"gpflow-deep: error: there is no verb {verb!r}; {hint}", file=sys.stderr)
        raise SystemExit(2)
    arguments = sys.argv[2:]
    script = script_of(verb, arguments)
    # The verbs of tables are commands of one script.
    is_command = script == VERBS["decompress"][0]
    sys.argv = ["gpflow-deep", verb, *arguments] if is_command else [f"gpflow-deep {verb}", *arguments]
    # The first import of a script answers what can be answered before TensorFlow starts.
    importlib.import_module(f"gpflow_deep_scripts.{script}").command()


if __name__ == "__main__":
    main()

"""The verbs of the command `gpflow-deep`, and the scripts that they call."""

from collections.abc import Mapping, Sequence

__all__ = ["VERBS", "script_of"]

VERBS: Mapping[str, tuple[str, str]] = {
    "train": ("train_dgp", "train a deep Gaussian process on a table or a data set"),
    "predict": ("predict_dgp", "predict new rows with it"),
    "convert": ("convert", "write tables as Parquet, which train --stream reads"),
    "rbm": ("track_rbm", "train a restricted Boltzmann machine and track its log Z"),
    "rbm-plot": ("plot_rbm_runs", "draw the log Z of several such runs"),
    "darn": ("train_darn", "train a deep autoregressive network on rows of bits"),
    "codec": ("compress_with_darn", "files of bits made smaller by a trained network, and back"),
    "ebp": ("train_ebp", "train networks by expectation backpropagation"),
    "ebp-predict": ("predict_ebp", "predict new rows with them"),
    "compress": ("compress_network", "make a Keras network small; compress FILE: a table"),
    "decompress": ("compress_table", "give the table back, byte for byte: decompress FILE"),
    "sweep": ("sweep", "train with many settings and seeds"),
}
"""What `gpflow-deep VERB` calls: the name of the script, and what it does."""


def script_of(verb: str, arguments: Sequence[str]) -> str:
    """The script that a command line calls: `compress FILE` is of a table, `compress --flag=value` of a network.

    :param verb: one of VERBS.
    :param arguments: what follows it.
    """
    if verb == "compress" and arguments and not arguments[0].startswith("-"):
        return VERBS["decompress"][0]
    return VERBS[verb][0]

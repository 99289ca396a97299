"""The verbs of the command `gpflow-deep`, and the scripts that they call."""

from collections.abc import Mapping

__all__ = ["VERBS"]

VERBS: Mapping[str, tuple[str, str]] = {
    "train": ("train_dgp", "train a deep Gaussian process on a table or a data set"),
    "predict": ("predict_dgp", "predict new rows with it"),
    "convert": ("convert", "write tables as Parquet, which train --stream reads"),
    "rbm": ("track_rbm", "train a restricted Boltzmann machine and track its log Z"),
    "rbm-plot": ("plot_rbm_runs", "draw the log Z of several such runs"),
    "darn": ("train_darn", "train a deep autoregressive network on rows of bits"),
    "codec": ("compress_with_darn", "tables and files of bits made smaller, and back"),
    "ebp": ("train_ebp", "train networks by expectation backpropagation"),
    "ebp-predict": ("predict_ebp", "predict new rows with them"),
    "compress": ("compress_network", "make a Keras network small"),
    "sweep": ("sweep", "train with many settings and seeds"),
}
"""What `gpflow-deep VERB` calls: the name of the script, and what it does."""

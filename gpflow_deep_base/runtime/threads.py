"""Threads of BLAS, which NumPy and SciPy multiply matrices by."""

from contextlib import AbstractContextManager

from threadpoolctl import threadpool_limits

__all__ = ["one_blas_thread"]


def one_blas_thread() -> AbstractContextManager[object]:
    """For fits by many products of small matrices: within it BLAS has one thread, and then as many as before.

    Several threads that wait for each other take up to 1.7 times the CPU seconds of one on idle cores and six times on
    busy ones, and their number changes the last bits. TensorFlow has threads of its own.
    """
    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits

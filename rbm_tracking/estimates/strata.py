"""AIS in strata: from each cluster of the rows, so that phases which the rows know have chains of their own.

AIS from the base rates of all rows starts between the phases of a table, and its chains may all end in one of them,
with weights that look even. Here clusters k = 1 ... K of the rows each have AIS of their own, from independent units
with the biases b_k of the cluster, and the rows v are shared out among them by functions pi_k(v) that add up to 1:

    Z = sum_k E_k[w pi_k(v_T)],      pi_k(v) = softmax_k((d_k'v - log Z(d_k)) / 4).

AIS is unbiased for every function of its last states (Neal, "Annealed importance sampling", 2001): E_k[w f(v_T)] =
Z E[f(v)], so that the sum is Z whatever the clusters and the biases d_k of the cells are, if they do not depend on the
chains. The variance is small where pi_k(v) is the larger the more chains of k arrive at v (the balance heuristic of
Veach and Guibas, 1995): d_k are the base rates of where other chains of k have arrived. Units that change together
count for each other there, so that independent ones are too sure of a cell; a quarter of their log odds is not.
"""

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.cluster import KMeans

from rbm_tracking.estimates.ais import AISResult, ais, is_at_once, pooled, result_of
from rbm_tracking.estimates.maxima import unlike_rows
from rbm_tracking.model import plain
from rbm_tracking.model.random import Execution
from rbm_tracking.model.rbm import RBM, base_rate_biases
from rbm_tracking.model.visible import Visible

__all__ = ["arrivals", "starts", "stratified", "with_maxima"]

_MOST = 8
_MOST_ROWS = 2000
_FEW_ROWS = 50
_ROWS_OF_MAXIMUM = 100  # that are drawn at one
_SURENESS = 0.25  # of cells
_CLIP = 0.02  # of probabilities, so that no cell is narrower than what chains can leave

Array = NDArray[np.float64]


def starts(rows: np.ndarray, visible: Visible) -> Array:
    """Biases of the clusters of the rows, by k-means, [K, n_v]: eight, or one for each row where fewer differ.

    :param rows: [N, n_v], as the visible units take them. Fewer than 50 are one cluster, and of many each n-th counts.
    """
    # Each n-th of many rows, and no more clusters than rows that differ.
    rows = rows[:: -(-len(rows) // _MOST_ROWS)]
    count = min(_MOST, len(np.unique(rows, axis=0))) if len(rows) >= _FEW_ROWS else 1
    number = KMeans(count, n_init=1, random_state=0).fit_predict(rows.astype(np.float64))
    return np.array([base_rate_biases(rows[number == k], clip=_CLIP, visible=visible) for k in np.unique(number)])


def with_maxima(rbm: RBM, base_b: Array, rng: np.random.Generator) -> Array:
    """The starts, and those at maxima of the model that they do not lead to, [K, n_v].

    :param rng: of the search.
    """
    # Rows that are drawn at each maximum have base rates of their own.
    units = plain.arrays(rbm.visible)
    fields = unlike_rows(rbm, base_b, rng)
    noise = rng.random((len(fields), _ROWS_OF_MAXIMUM, units.num_noise(base_b.shape[1])))
    rows = [units.draw(np.broadcast_to(x, (_ROWS_OF_MAXIMUM, len(x))), u) for x, u in zip(fields, noise, strict=True)]
    biases = [base_rate_biases(units.stored(v), clip=_CLIP, visible=rbm.visible) for v in rows]
    return np.array([*base_b, *biases])


def stratified(
    rbm: RBM,
    betas: ArrayLike,
    base_b: Array,
    cells: Array,
    *,
    num_chains: int = 100,
    seed: tf.Tensor,
    generator: str = "threefry",
    jit_compile: bool = True,
) -> AISResult:
    """Log Z from below, by chains from each start, of which each counts for what is in its cell.

    :param base_b: visible biases at beta = 0, [K, n_v], for example :func:`starts`.
    :param cells: d_k, [K, n_v]: `base_b`, or the :func:`arrivals` of another result.
    :param num_chains: from each start.
    :return: its log-weights [K num_chains] hold log(K pi_k), and its errors are those within strata.

    Other arguments and errors as for `ais.ais`.
    """
    units = plain.arrays(rbm.visible)
    options: Execution = {"generator": generator, "jit_compile": jit_compile}
    num_strata = len(base_b)
    # AIS from each cluster: of all of them at once, or of one after the other.
    if is_at_once(generator):
        all_b = np.repeat(base_b, num_chains, axis=0)
        together = ais(rbm, betas, num_chains=len(all_b), seed=seed, base_b=all_b, **options)
    else:
        together = pooled(
            [
                ais(rbm, betas, num_chains=num_chains, seed=tf.random.fold_in(seed, k), base_b=start, **options)
                for k, start in enumerate(base_b)
            ]
        )
    # Each chain counts with log pi_k of where it has arrived.
    log_normalisers = np.array([units.log_normaliser(d) for d in cells])
    log_pi = log_softmax(_SURENESS * (together.v.astype(np.float64) @ cells.T - log_normalisers), axis=1)
    own = np.take_along_axis(log_pi, np.repeat(np.arange(num_strata), num_chains)[:, None], axis=1)[:, 0]
    return result_of(together.log_weights + own + np.log(num_strata), together.v, num_strata=num_strata)


def arrivals(result: AISResult, num_strata: int, visible: Visible) -> Array:
    """Biases of the last states of each stratum, [K, n_v]."""
    return np.array([base_rate_biases(v, clip=_CLIP, visible=visible) for v in np.split(result.v, num_strata)])

"""One layer of a deep Gaussian process: a sparse variational GP with P outputs (Secs. 2.1 and 2.2 of [1]).

For inputs `x`, inducing inputs `Z` and whitened inducing outputs `v = L^-1 u`, `L L' = Kuu`, `q(v) = N(q_mu, S)`:

    A     = L^-1 k(Z, x)
    mean  = m(x) + A' q_mu                               Eq. (7)
    var   = k(x, x) - A'A + A' S A                       Eq. (8)
    f     = mean + sqrt(var) eps,  eps ~ N(0, I)         Eq. (15)

With the noise between layers of Sec. 2.2, `k(x, x')` is `k(x, x') + noise_variance delta(x, x')` throughout: it is in
`Kuu`, in `var`, and therefore in every draw that the next layer sees.

[1] Salimbeni and Deisenroth, "Doubly Stochastic Variational Inference for Deep Gaussian Processes", NIPS 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Module, Parameter, TensorType
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel, LinearCoregionalization, MultioutputKernel, SharedIndependent, Stationary
from gpflow.kullback_leiblers import gauss_kl
from gpflow.mean_functions import MeanFunction, Zero
from gpflow.models.util import InducingVariablesLike, inducingpoint_wrapper
from gpflow.utilities import positive, triangular

from ..functions.pathwise import FunctionNoise, LayerFunctions, draw_gps
from .moments import (
    LayerMoments,
    add_diagonal,
    by_rows,
    check_kernel,
    check_mean_function,
    condition_number,
    cross_covariance,
    draw,
    flat_points,
    inducing_covariance,
    input_dim_of,
    jitter_of,
    largest_square,
    latent_inducing_variables,
    mix,
    outputs_covariance,
    outputs_of,
    prepend_certain,
    quadratic_form,
    robust_cholesky,
)

__all__ = ["CachedFactors", "CachedForms", "LayerFactors", "Precision", "SVGPLayer"]

#: How a layer computes its marginal variances.
#: `"full"`: everything in the model's float type.
#: `"mixed"`: kernel, Cholesky, solve and mean as `"full"`; only the product with the P covariances `S` in float32.
#: `"fast"`: everything with a data axis in float32, unless `Kuu` looks ill-conditioned or the inputs are far out, when
#: it acts as `"mixed"`.
Precision = Literal["full", "mixed", "fast"]

#: `"fast"` precision is used while (max diag L / min diag L)^2, a lower bound of cond(Kuu), stays below this. The ratio
#: itself cannot exceed variance / jitter, so a limit of 1e6 would never be reached with GPflow's default jitter.
FAST_CONDITION_LIMIT = 1e5

#: ... and while no input is farther than the square root of this from the inducing inputs' centre, in lengthscales:
#: the relative rounding error of a float32 kernel value is about 6e-8 times the square.
FAST_SQUARE_LIMIT = 1e4

#: `CachedForms` are used where rounding can change variances by less than this, in units of GPflow's jitter or of the
#: layer's own, which is in them anyway.
MAX_ROUNDING = 0.1

#: A float32 cache is refused above this condition number of Kuu: the variances would lose more than about 1e-3.
FLOAT32_CONDITION_LIMIT = 1e7


class LayerFactors(NamedTuple):
    """What a layer computes once per set of parameters. K is 1 where the outputs share kernel and Z, else L.

    :ivar Luu: Cholesky factors of Kuu, [M, M] (shared) or [L, M, M] (separate).
    :ivar q_mu: whitened variational means, or values of the inducing outputs, [M, L].
    :ivar q_sqrt: whitened factors of the variational covariances, [L, M, M], or standard deviations [M, L]; None where
        the inducing outputs are known to be `q_mu`.
    """

    Luu: tf.Tensor
    q_mu: tf.Tensor
    q_sqrt: tf.Tensor | None


class CachedFactors(NamedTuple):
    """What predicting needs of a layer, so that products suffice: with `A = projection k(Z, x)`,
    `mean = A' alpha` and `var = k(x, x) - A'A + A' S A`, as in the module's docstring.

    :ivar projection: inverse of chol(Kuu), [M, M] or [L, M, M].
    :ivar alpha: whitened variational means, [M, L].
    :ivar S: whitened variational covariances, [L, M, M], or variances [M, L].
    """

    projection: tf.Tensor
    alpha: tf.Tensor
    S: tf.Tensor


class CachedForms(NamedTuple):
    """The same in one product for each latent GP: `mean = k(Z, x)' weights`, `var = k(x, x) - k(Z, x)' form k(Z, x)`.

    For float64 only, as rounding errors grow with the condition number of Kuu, not with its root, and only where these
    are small all the same (`MAX_ROUNDING`); and for whitened q(u) only, as `L^-1 S L^-T` of others can be as large as
    that number, too.

    :ivar weights: `projection' alpha`, [M, L].
    :ivar form: `projection' (I - S) projection`, [L, M, M]; [1, M, M] if it is that of all latent GPs.
    """

    weights: tf.Tensor
    form: tf.Tensor


AnyFactors: TypeAlias = LayerFactors | CachedFactors | CachedForms


class SVGPLayer(Module):
    """P Gaussian processes with inducing outputs `u ~ q(u) = N(q_mu, q_sqrt q_sqrt')` (whitened: of `L^-1 u`).

    :param kernel: a GPflow kernel, used for every output; or a multi-output kernel: `SharedIndependent`,
        `SeparateIndependent`, or `LinearCoregionalization`, whose latent draws are mixed *before* the next layer.
    :param inducing_variable: inducing inputs, an array [M, D], any GPflow `InducingVariables`, or their shared or
        separate multi-output versions.
    :param num_latent_gps: number L of latent GPs; may be omitted where the kernel tells it.
    :param mean_function: m, maps [..., D] to [..., P]; zero by default. It enters the output only:
        the inducing outputs are those of the zero-mean process.
    :param q_mu: initial variational mean [M, L], zero by default.
    :param q_sqrt: initial [L, M, M] (or [M, L] if `q_diag`); by default the identity if `whiten`, else chol(Kuu).
    :param q_sqrt_scale: factor on the default `q_sqrt`; 1e-5 is the paper's choice for inner layers.
    :param q_diag: diagonal instead of full variational covariances, [M, L] standard deviations.
    :param whiten: whether q(u) is held as q(L^-1 u).
    :param noise_variance: initial variance of the noise between layers, a trainable parameter; None for no noise.
    :param input_propagation: number of leading input columns that are passed on unchanged in front of the outputs
        (the paper's "input propagation" as in Duvenaud et al. 2014); 0 for none.
    :param precision: see `Precision`.
    :raises ValueError: if shapes do not fit one another.
    """

    kernel: Kernel
    inducing_variable: InducingVariables
    mean_function: MeanFunction
    q_mu: Parameter
    """Variational mean, [M, L]."""
    q_sqrt: Parameter
    """Cholesky factors of the variational covariances, [L, M, M]; or standard deviations [M, L] if `q_diag`."""
    noise_variance: Parameter | None
    """Variance of the noise between layers, or None."""
    label: str
    """What error messages call this layer; a `DeepGP` sets it to "layer 2 of 3"."""
    jitter: float | None = None
    """Of Kuu; None for GPflow's `default_jitter`, or rounding of M if that is more."""

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariablesLike,
        *,
        num_latent_gps: int | None = None,
        mean_function: MeanFunction | None = None,
        q_mu: TensorType | None = None,
        q_sqrt: TensorType | None = None,
        q_sqrt_scale: float = 1.0,
        q_diag: bool = False,
        whiten: bool = True,
        noise_variance: float | None = None,
        input_propagation: int = 0,
        precision: Precision = "full",
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if precision not in ("full", "mixed", "fast"):
            raise ValueError(f"precision must be 'full', 'mixed' or 'fast', got {precision!r}.")
        check_kernel(kernel)
        self.label = self.name
        self.kernel = kernel
        self.inducing_variable = inducingpoint_wrapper(inducing_variable)
        self.num_latent_gps = _num_latent_gps(kernel, num_latent_gps, q_mu)
        self.mean_function = Zero(self.output_dim_of_gps) if mean_function is None else mean_function
        self.whiten = whiten
        self.q_diag = q_diag
        self.input_propagation = input_propagation
        self.precision: Precision = precision
        _check_parts(self)

        # The default q(u): mean 0, and the factor of the prior's covariance times `q_sqrt_scale`.
        num_inducing = int(self.inducing_variable.num_inducing)
        L = self.num_latent_gps
        if q_mu is None:
            q_mu = np.zeros((num_inducing, L))
        if tuple(np.shape(q_mu)) != (num_inducing, L):
            raise ValueError(f"q_mu must have shape [M, L] = [{num_inducing}, {L}], got {list(np.shape(q_mu))}.")
        # The noise between layers of Sec. 2.2.
        self.noise_variance = None
        if noise_variance is not None:
            if noise_variance <= 0.0:
                raise ValueError(f"noise_variance must be positive or None, got {noise_variance}; None means no noise.")
            self.noise_variance = Parameter(noise_variance, transform=positive(), dtype=default_float())
        if q_sqrt is None:
            if not q_sqrt_scale > 0.0:
                raise ValueError(f"q_sqrt_scale must be positive, got {q_sqrt_scale}; 1e-5 is almost certain.")
            q_sqrt = q_sqrt_scale * self._default_q_sqrt(num_inducing)
        expected = (num_inducing, L) if q_diag else (L, num_inducing, num_inducing)
        if tuple(np.shape(q_sqrt)) != expected:
            raise ValueError(
                f"q_sqrt must have shape {'[M, L]' if q_diag else '[L, M, M]'} = {list(expected)}, "
                f"got {list(np.shape(q_sqrt))}."
            )
        self.q_mu = Parameter(q_mu, dtype=default_float())
        self.q_sqrt = Parameter(q_sqrt, transform=positive() if q_diag else triangular(), dtype=default_float())

    # The model.

    @property
    def output_dim_of_gps(self) -> int:
        """Number P of outputs of the (mixed) GPs, without the propagated inputs."""
        if isinstance(self.kernel, LinearCoregionalization):
            return int(self.kernel.W.shape[0])
        return self.num_latent_gps

    @property
    def output_dim(self) -> int:
        """Number of output columns: `input_propagation` + P."""
        return self.input_propagation + self.output_dim_of_gps

    @property
    def input_dim(self) -> int | None:
        """Number D of input columns, or None where neither kernel nor inducing variable tells."""
        return input_dim_of(self.latent_kernels[0], latent_inducing_variables(self.inducing_variable)[0])

    @property
    def dtype(self) -> tf.DType:
        """Float type of the parameters, and so of inputs and outputs."""
        return self.q_mu.dtype

    @property
    def floats_per_row(self) -> int:
        """Numbers in the temporary arrays [M, N] and [L, M, N] of a prediction, for each of the N rows."""
        return int(self.q_mu.shape[0]) * (3 + self.num_latent_gps)

    @property
    def is_shared(self) -> bool:
        """Whether all latent GPs use one kernel and one set of inducing inputs, hence one Kuu."""
        return len(self.latent_kernels) == 1 and len(latent_inducing_variables(self.inducing_variable)) == 1

    @property
    def latent_kernels(self) -> tuple[Kernel, ...]:
        """The kernels of the latent GPs: one if shared, else L."""
        return self.kernel.latent_kernels if isinstance(self.kernel, MultioutputKernel) else (self.kernel,)

    def factors(self) -> LayerFactors:
        """Factorise Kuu and whiten q(u). Compute once per step and hand to the methods below."""
        # L L' = Kuu + jitter I.
        Kuu_ = self.prior_covariance()
        Luu = robust_cholesky(
            Kuu_,
            label=f"{self.label}: covariance Kuu of the inducing outputs",
            jitter=jitter_of(self, int(self.q_mu.shape[0]), Kuu_.dtype),
            details=_lengthscales(self.latent_kernels),
        )
        if self.whiten:
            return LayerFactors(Luu, tf.convert_to_tensor(self.q_mu), tf.convert_to_tensor(self.q_sqrt))
        # q(u) is held: v = L^-1 u has the mean L^-1 q_mu and the factor L^-1 q_sqrt.
        q_sqrt = _as_matrices(tf.convert_to_tensor(self.q_sqrt))
        if self.is_shared:
            # One solve for all right-hand sides.
            L = self.num_latent_gps
            M = int(self.q_mu.shape[0])
            columns = tf.concat([self.q_mu, tf.reshape(tf.transpose(q_sqrt, [1, 0, 2]), [M, L * M])], axis=1)
            solved = tf.linalg.triangular_solve(Luu, columns)
            whitened = tf.transpose(tf.reshape(solved[:, L:], [M, L, M]), [1, 0, 2])
            return LayerFactors(Luu, solved[:, :L], whitened)
        q_mu = tf.linalg.triangular_solve(Luu, tf.transpose(self.q_mu)[:, :, None])  # [L, M, 1]
        return LayerFactors(Luu, tf.transpose(q_mu[:, :, 0]), tf.linalg.triangular_solve(Luu, q_sqrt))

    def prior_covariance(self) -> tf.Tensor:
        """Kuu with the noise between layers and without jitter: [M, M] if `is_shared`, else [L, M, M]."""
        pairs = self._pairs()
        Kuus = [inducing_covariance(inducing, kernel) for inducing, kernel in pairs]
        K = Kuus[0] if len(pairs) == 1 else tf.stack(Kuus)
        return K if self.noise_variance is None else add_diagonal(K, self.noise_variance)

    @check_shapes("return: []")
    def prior_kl(self, factors: LayerFactors | None = None) -> tf.Tensor:
        """KL[q(u) || p(u)] in nats, summed over the latent GPs: the l-th term of the last sum of Eq. (17)."""
        factors = self.factors() if factors is None else factors
        if factors.q_sqrt is None:
            raise ValueError(f"{self.label}: known inducing outputs have no KL divergence; take `factors()`.")
        return gauss_kl(factors.q_mu, factors.q_sqrt)

    # Prediction.

    def latent_moments(
        self, X: TensorType, factors: AnyFactors | None = None, *, full_cov: bool = False
    ) -> LayerMoments:
        """Moments of the latent GPs at X, Eqs. (7) and (8), before mean function and mixing.

        :param X: inputs, [..., N, D].
        :param factors: what `factors()` returned, or a posterior's cache; computed if None.
        :param full_cov: covariances between the N inputs (of the same s) instead of variances.
        """
        factors = self.factors() if factors is None else factors
        X = tf.convert_to_tensor(X)
        points = flat_points(X)
        if full_cov:
            return self._joint_moments(X, points, factors)
        # Eqs. (7) and (8) at each point by itself, from the factors of a step or from a cache.
        if isinstance(factors, CachedFactors | CachedForms):
            mean, var = self._cached_marginals(points, factors)
        else:
            mean, var = self._marginals(points, factors)
        var = tf.maximum(var, 0.0)  # a difference, which rounding can make negative
        if var.shape[-1] != mean.shape[-1]:  # one of known values, for all latent GPs
            var = tf.broadcast_to(var, tf.shape(mean))
        # Rows in their places again.
        shape = tf.concat([tf.shape(X)[:-1], [self.num_latent_gps]], axis=0)
        moments = LayerMoments(tf.reshape(mean, shape), tf.reshape(var, shape))
        for tensor in moments:
            tensor.set_shape(X.shape[:-1].concatenate([self.num_latent_gps]))
        return moments

    def outputs(
        self, X: tf.Tensor, moments: LayerMoments, *, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments of the layer's outputs from those of its latent GPs: mixing, mean function, propagated inputs.

        :return: mean [..., N, P] and covariance [..., N, P], [..., P, N, N], [..., N, P, P] or [..., N, P, N, P].
        """
        W = self._W()
        if W is None:
            mean = moments.mean
            cov = outputs_covariance(moments, full_cov=full_cov, full_output_cov=full_output_cov)
        else:
            mean, cov = mix(W, *moments, full_cov, full_output_cov)
        mean = mean + self.mean_function(X)
        if self.input_propagation:
            mean = tf.concat([X[..., : self.input_propagation], mean], axis=-1)
            cov = prepend_certain(cov, self.input_propagation, full_cov, full_output_cov)
        return mean, cov

    def predict(
        self,
        X: TensorType,
        *,
        full_cov: bool = False,
        full_output_cov: bool = False,
        factors: AnyFactors | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and covariance of the outputs at X ([N, D] or [S, N, D]), Eqs. (7) and (8).

        :return: mean [..., N, P] and covariance [..., N, P]; [..., P, N, N] with `full_cov`; [..., N, P, P] with
            `full_output_cov`; [..., N, P, N, P] with both. P counts the propagated inputs, whose variance is 0.
        """
        X = tf.convert_to_tensor(X)
        moments = self.latent_moments(X, factors, full_cov=full_cov)
        return self.outputs(X, moments, full_cov=full_cov, full_output_cov=full_output_cov)

    def sample(self, X: TensorType, moments: LayerMoments, noise: tf.Tensor, *, full_cov: bool = False) -> tf.Tensor:
        """Draw outputs at X from explicit standard-normal noise: Eq. (15).

        :param X: inputs, [N, D] or [S, N, D].
        :param moments: what `latent_moments(X, full_cov=full_cov)` returned.
        :param noise: [S, N, L] standard-normal draws (or quadrature nodes, or zeros for a mean pass); N may be 1.
        :param full_cov: draw jointly over the N inputs.
        :return: [S, N, output_dim].
        """
        X = tf.convert_to_tensor(X)
        # Eq. (15) for the latent GPs, then mixing, mean function and propagated inputs.
        g = draw(moments, noise, full_cov=full_cov, label=self.label)
        return outputs_of(g, X, self._W(), self.mean_function, self.input_propagation)

    def sample_functions(
        self,
        num_functions: int,
        seed: tf.Tensor,
        *,
        num_features: int,
        noise: FunctionNoise,
        values: tf.Tensor | None = None,
    ) -> LayerFunctions:
        """Draws of the outputs as functions, by Matheron's rule: see `pathwise`.

        :param num_functions: how many functions, S.
        :param seed: int32 [2].
        :param num_features: even; of each latent GP.
        :param noise: how they have the noise between layers.
        :param values: whitened inducing outputs of the functions, [S, M, L]; draws from q if None.
        :return: inputs [N, D] or [S, N, D], and integers that tell the model's inputs apart -> outputs [S, N, P].
        :raises ValueError: naming a kernel or an inducing variable that functions cannot be drawn of.
        """
        return draw_gps(
            self, self._pairs(), self._W(), num_functions, seed, num_features=num_features, noise=noise, values=values
        )

    def slopes_through(self, X: tf.Tensor, weights: tf.Tensor, factors: LayerFactors) -> tf.Tensor:
        """Means [R, K, L] of the latent GPs at X [R, K, D] given draws of them at X, `m(x) + C(x, X) weights`, where
        only the x of each input has a gradient: that of its own mean. C is the covariance under q.

        :param weights: `C(X, X)^-1 (draws - m(X))`, [R, L, K].
        """
        Luu, q_mu, q_sqrt = factors
        R = tf.shape(X)[0]
        K = tf.shape(X)[1]
        M = self.q_mu.shape[0]
        # With A(x) = L^-1 k(Z, x) and s = A(X) weights, the mean is A(x)' (q_mu - s + S s) + k(x, X) weights.
        Kuf = self._Kuf(flat_points(X), X.dtype)
        Kuf = tf.reshape(Kuf, tf.stack([-1, M, R, K]))  # [1 or L, M, R, K]
        Kfu = tf.transpose(Kuf, [2, 0, 3, 1])  # [R, 1 or L, K, M]
        columns = weights[..., None]  # [R, L, K, 1]
        sums = tf.matmul(tf.stop_gradient(Kfu), columns, transpose_a=True)[..., 0]  # [R, L, M]
        Luu = tf.broadcast_to(Luu, tf.stack([self.num_latent_gps, *Luu.shape[-2:]]))  # of each, where they share one
        sums = tf.linalg.triangular_solve(Luu, tf.transpose(sums, [1, 2, 0]))  # [L, M, R]
        # q_mu - s + S s, multiplied by L^-T once, so that it meets k(Z, x) instead of A(x).
        alpha = tf.transpose(q_mu)[..., None] - sums
        if q_sqrt is not None:
            root = _as_matrices(q_sqrt)
            alpha += tf.matmul(root, tf.matmul(root, sums, transpose_a=True))
        alpha = tf.linalg.triangular_solve(Luu, alpha, adjoint=True)
        mean = tf.matmul(Kfu, tf.transpose(alpha, [2, 0, 1])[..., None])[..., 0]  # [R, L, K]
        # k(x, X), in which the second argument has no gradient.
        both = tf.concat([X, tf.stop_gradient(X)], axis=1)
        Kffs = [kernel(both, full_cov=True)[:, :K, K:] for _, kernel in self._pairs()]
        Kff = tf.stack(Kffs, axis=1)  # [R, 1 or L, K, K]
        return tf.linalg.matrix_transpose(mean + tf.matmul(Kff, columns)[..., 0])

    def cache(self, *, dtype: tf.DType | None = None) -> CachedFactors | CachedForms:
        """Precompute what `latent_moments` needs for repeated prediction; see `CachedForms`, which is what a whitened
        layer of "full" precision in float64 has, and `CachedFactors`.

        :param dtype: float32 for the faster form; the model's float type if None.
        :raises ValueError: if float32 is asked for and Kuu has a condition number above 1e7.
        """
        Luu, q_mu, q_sqrt = self.factors()
        assert q_sqrt is not None  # of mypy: these are not known values
        dtype, identity, inverse = self._inverse(Luu, dtype)
        S = _squared(q_sqrt)
        low = dtype if self.precision == "full" else tf.float32
        # Where rounding allows it, both terms of the variance in one form, L^-T (I - S) L^-1.
        if low == tf.float64 and S.shape.rank == 3 and self.whiten:
            form = tf.matmul(inverse, tf.matmul(identity - S, inverse), transpose_a=True)
            if self._is_exact(form):
                return CachedForms(_project_mean(inverse, q_mu), form)
        return CachedFactors(tf.cast(inverse, dtype), tf.cast(q_mu, dtype), tf.cast(S, low))

    def cache_values(self, values: tf.Tensor, *, dtype: tf.DType | None = None) -> CachedFactors | CachedForms:
        """`cache` for K known values of the whitened inducing outputs: the same with an axis of K in front, of length 1
        where the K do not differ.

        :param values: [K, M, L].
        :param dtype: and errors as in `cache`.
        """
        Luu = self.factors().Luu
        dtype, _, inverse = self._inverse(Luu, dtype)
        if dtype == tf.float64:
            # Known values have S = 0: one form for all of them.
            form = tf.matmul(inverse, inverse, transpose_a=True)
            members = tf.unstack(values)
            form = form[None] if self.is_shared else form
            if self._is_exact(form):
                return CachedForms(tf.stack([_project_mean(inverse, value) for value in members]), form[None])
        # Where rounding or the type does not allow it: variances of 0.
        S = tf.zeros([1, *values.shape[1:]], dtype)
        return CachedFactors(tf.cast(inverse, dtype)[None], tf.cast(values, dtype), S)

    # Private.

    def _inverse(self, Luu: tf.Tensor, dtype: tf.DType | None) -> tuple[tf.DType, tf.Tensor, tf.Tensor]:
        """The type of a cache, I and Luu^-1."""
        dtype = Luu.dtype if dtype is None else dtype
        if dtype == tf.float32 != Luu.dtype:
            Luu = self._well_conditioned(Luu)
        identity = tf.eye(int(self.q_mu.shape[0]), dtype=Luu.dtype)
        return dtype, identity, tf.linalg.triangular_solve(Luu, tf.broadcast_to(identity, tf.shape(Luu)))

    def _is_exact(self, form: tf.Tensor) -> bool:
        """Whether rounding of `K form K` [..., M, M] is small, at the inducing inputs; taken for granted in graphs."""
        if not tf.executing_eagerly():
            return True
        K = self.prior_covariance()
        # k_z' |form| k_z for each inducing input z, with k_z = k(Z, z): rounding is eps times that.
        sizes = tf.reduce_sum(K * tf.matmul(tf.abs(form), K), axis=-2)
        rounding = float(np.finfo(np.float64).eps) * float(tf.reduce_max(sizes))
        return rounding < MAX_ROUNDING * jitter_of(self, int(self.q_mu.shape[0]), K.dtype)

    def _default_q_sqrt(self, num_inducing: int) -> np.ndarray:
        identity = np.tile(np.eye(num_inducing), [self.num_latent_gps, 1, 1])
        if not self.whiten:
            Kuu_ = self.prior_covariance()
            jitter = jitter_of(self, num_inducing, Kuu_.dtype)
            root = robust_cholesky(Kuu_, label=f"{self.label}: initial covariance", jitter=jitter)
            identity = np.broadcast_to(root.numpy(), identity.shape)
        return np.diagonal(identity, axis1=1, axis2=2).T.copy() if self.q_diag else identity

    def _well_conditioned(self, Luu: tf.Tensor) -> tf.Tensor:
        condition = condition_number(tf.matmul(Luu, Luu, transpose_b=True))
        requirement = f"condition numbers of Kuu below {FLOAT32_CONDITION_LIMIT:.0e} for a float32 cache"
        if tf.executing_eagerly():
            if not float(condition) < FLOAT32_CONDITION_LIMIT:
                raise ValueError(f"{self.label} must have {requirement}, got {float(condition):.1e}; use dtype=None.")
            return Luu
        check = tf.debugging.Assert(
            condition < FLOAT32_CONDITION_LIMIT, [f"{self.label} must have {requirement}, got", condition]
        )
        with tf.control_dependencies([check]):
            return tf.identity(Luu)

    def _W(self) -> tf.Tensor | None:
        """By which the latent GPs are mixed, [P, L]; None where they are the outputs."""
        return tf.convert_to_tensor(self.kernel.W) if isinstance(self.kernel, LinearCoregionalization) else None

    def _pairs(self) -> list[tuple[InducingVariables, Kernel]]:
        inducing = latent_inducing_variables(self.inducing_variable)
        kernels = self.latent_kernels
        count = max(len(inducing), len(kernels))
        return list(zip(inducing * (count // len(inducing)), kernels * (count // len(kernels)), strict=True))

    def _Kuf(self, points: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """[M, B] if shared, else [L, M, B]."""
        columns = [cross_covariance(inducing, kernel, points, dtype) for inducing, kernel in self._pairs()]
        return columns[0] if self.is_shared else tf.stack(columns)

    def _prior_variances(self, points: tf.Tensor) -> tf.Tensor:
        """k(x, x) with noise: [1, B] if shared, else [L, B]."""
        variances = tf.stack([kernel(points, full_cov=False) for _, kernel in self._pairs()])
        return variances if self.noise_variance is None else variances + self.noise_variance

    def _marginals(self, points: tf.Tensor, factors: LayerFactors) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and variances [B, L] at `points` [B, D]."""
        dtype = factors.Luu.dtype
        prior = self._prior_variances(points)

        # A = L^-1 k(Z, x), A' q_mu of Eq. (7) and A'A of Eq. (8).
        def project(dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            A = tf.linalg.triangular_solve(tf.cast(factors.Luu, dtype), self._Kuf(points, dtype))
            reduction = tf.reduce_sum(tf.square(A), axis=-2)  # [B] or [L, B]
            return A, _project_mean(A, tf.cast(factors.q_mu, dtype)), reduction

        # "fast": in float32 if Kuu looks well-conditioned and no input is far out, else as "mixed".
        low = dtype if self.precision == "full" else tf.float32
        if self.precision == "fast" and dtype != tf.float32:
            diagonal = tf.linalg.diag_part(factors.Luu)
            spread = tf.square(tf.reduce_max(diagonal, axis=-1) / tf.reduce_min(diagonal, axis=-1))

            def cast_all(tensors: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
                A, mean, reduction = tensors
                return tf.cast(A, low), tf.cast(mean, dtype), tf.cast(reduction, dtype)

            squares = [largest_square(inducing, kernel, points) for inducing, kernel in self._pairs()]
            is_near = tf.reduce_all([square < FAST_SQUARE_LIMIT for square in squares if square is not None])
            A, mean, reduction = tf.cond(
                tf.logical_and(tf.reduce_max(spread) < FAST_CONDITION_LIMIT, is_near),
                lambda: cast_all(project(low)),
                lambda: cast_all(project(dtype)),
            )
        else:
            A, mean, reduction = project(dtype)
            A = tf.cast(A, low)
        if factors.q_sqrt is None:
            return mean, tf.transpose(prior - reduction)
        # Eq. (8): k(x, x) - A'A + A' S A.
        S = _squared(tf.cast(factors.q_sqrt, low))
        return mean, tf.transpose(prior - reduction) + tf.cast(_added_variance(A, S), dtype)

    def _cached_marginals(self, points: tf.Tensor, factors: CachedFactors | CachedForms) -> tuple[tf.Tensor, tf.Tensor]:
        dtype = points.dtype
        prior = tf.transpose(self._prior_variances(points))
        if isinstance(factors, CachedForms):
            # `mean = k(Z, x)' weights`, `var = k(x, x) - k(Z, x)' form k(Z, x)`.
            K = self._Kuf(points, dtype)
            return _project_mean(K, factors.weights), prior - quadratic_form(K, factors.form)
        # Eqs. (7) and (8) with A = projection k(Z, x).
        A = tf.matmul(factors.projection, self._Kuf(points, factors.projection.dtype))
        mean = tf.cast(_project_mean(A, factors.alpha), dtype)
        if factors.S.shape.rank == 3 and factors.S.dtype == A.dtype:  # one pass over A instead of two
            identity = tf.eye(int(self.q_mu.shape[0]), dtype=A.dtype)
            return mean, prior - tf.cast(quadratic_form(A, identity - factors.S), dtype)
        reduction = tf.transpose(tf.cast(tf.reduce_sum(tf.square(A), axis=-2), dtype))  # [B] or [B, L]
        added = tf.cast(_added_variance(tf.cast(A, factors.S.dtype), factors.S), dtype)
        return mean, prior - tf.reshape(reduction, tf.shape(prior)) + added

    def _joint_moments(self, X: tf.Tensor, points: tf.Tensor, factors: AnyFactors) -> LayerMoments:
        """Mean [..., N, L] and covariance [..., L, N, N], computed in the model's float type."""
        dtype = points.dtype
        # What the inducing outputs change in the covariance, A' (S - I) A: A, and the matrix in the middle.
        A = self._Kuf(points, dtype)  # [M, B] or [L, M, B]
        if isinstance(factors, CachedForms):
            q_mu = factors.weights
            middle = -factors.form
        elif isinstance(factors, CachedFactors):
            A = tf.matmul(tf.cast(factors.projection, dtype), A)
            q_mu = tf.cast(factors.alpha, dtype)
            middle = _as_matrices(tf.cast(factors.S, dtype)) - tf.eye(int(self.q_mu.shape[0]), dtype=dtype)
        else:
            A = tf.linalg.triangular_solve(factors.Luu, A)
            q_mu = factors.q_mu
            middle = -tf.eye(int(self.q_mu.shape[0]), dtype=dtype)[None]
            if factors.q_sqrt is not None:
                middle = _as_matrices(_squared(tf.cast(factors.q_sqrt, dtype))) + middle
        # Eq. (7), and the product for Eq. (8) between all points of a row of X.
        mean = tf.reshape(_project_mean(A, q_mu), tf.concat([tf.shape(X)[:-1], [self.num_latent_gps]], axis=0))
        if self.is_shared:
            # One product for all rows and latent GPs, with sizes that are known while tracing.
            M = int(self.q_mu.shape[0])
            num = 1 if middle.shape.rank == 2 else middle.shape[0]
            product = tf.reshape(tf.matmul(tf.reshape(middle, [-1, M]), A), tf.stack([num, M, tf.shape(A)[1]]))
            A = A[None]
        else:
            product = tf.matmul(middle, A)
        A, product = (by_rows(part, tf.shape(X)[:-1], len(X.shape)) for part in (A, product))
        covariance = tf.matmul(A, product, transpose_a=True)  # [..., L or 1, N, N]
        # k(x, x'), with the noise between layers where x = x'.
        Kff = tf.stack([kernel(X, full_cov=True) for _, kernel in self._pairs()], axis=-3)
        if self.noise_variance is not None:
            Kff = add_diagonal(Kff, self.noise_variance)
        mean.set_shape(X.shape[:-1].concatenate([self.num_latent_gps]))
        covariance = Kff + covariance
        # Of known inducing outputs all latent GPs have the same one.
        if covariance.shape[-3] != self.num_latent_gps:
            covariance = tf.repeat(covariance, self.num_latent_gps, axis=-3)
        return LayerMoments(mean, covariance)


def _num_latent_gps(kernel: Kernel, given: int | None, q_mu: TensorType | None) -> int:
    if isinstance(kernel, MultioutputKernel):
        num_of_kernel = int(kernel.num_latent_gps)
        if given is not None and given != num_of_kernel:
            raise ValueError(f"num_latent_gps must equal the kernel's {num_of_kernel}, got {given}; leave it out.")
        if (
            not isinstance(kernel, SharedIndependent | LinearCoregionalization)
            and len(kernel.latent_kernels) != num_of_kernel
        ):
            raise ValueError(
                f"multi-output kernel {type(kernel).__name__} is not supported: use SharedIndependent, "
                "SeparateIndependent or LinearCoregionalization."
            )
        return num_of_kernel
    if given is not None:
        return int(given)
    return 1 if q_mu is None else int(np.shape(q_mu)[1])


def _check_parts(layer: SVGPLayer) -> None:
    """Refuse latent GPs, kernels, inducing and propagated inputs and a mean function that do not fit one another."""
    if layer.num_latent_gps < 1:
        raise ValueError(f"num_latent_gps must be at least 1, got {layer.num_latent_gps}.")
    # One of each for every latent GP, or one for all.
    inducing = latent_inducing_variables(layer.inducing_variable)
    for label, count in (("separate inducing variables", len(inducing)), ("latent kernels", len(layer.latent_kernels))):
        if count not in (1, layer.num_latent_gps):
            raise ValueError(
                f"the number of {label} must be 1 or num_latent_gps = {layer.num_latent_gps}, got {count}; "
                "give one for each latent GP or a shared one."
            )
    # The columns that are handed on are columns of the inputs.
    D = layer.input_dim
    if layer.input_propagation < 0 or (D is not None and layer.input_propagation > D):
        raise ValueError(
            f"input_propagation must be from 0 to the number of input columns, {D or 'D'}, got "
            f"{layer.input_propagation}."
        )
    if D is None:
        return
    # Each kernel reads some of the D columns, with as many lengthscales.
    for kernel in layer.latent_kernels:
        dims = kernel.active_dims
        if not isinstance(dims, slice) and np.max(dims) >= D:
            raise ValueError(f"a kernel must read some of the {D} input columns, got active_dims={dims}.")
        num_read = np.arange(D)[dims].size
        if isinstance(kernel, Stationary) and np.size(kernel.lengthscales) not in (1, num_read):
            raise ValueError(
                f"a kernel of {num_read} inputs must have 1 or {num_read} lengthscales, got "
                f"{np.size(kernel.lengthscales)}."
            )
    check_mean_function(layer.mean_function, D, layer.output_dim_of_gps)


def _lengthscales(kernels: Sequence[Kernel]) -> list[tuple[str, tf.Tensor]]:
    return [
        (f"lengthscales of kernel {i}", tf.convert_to_tensor(kernel.lengthscales))
        for i, kernel in enumerate(kernels)
        if hasattr(kernel, "lengthscales")
    ]


def _squared(q_sqrt: tf.Tensor) -> tf.Tensor:
    """S = q_sqrt q_sqrt', [L, M, M], of factors; variances [M, L] of standard deviations."""
    return tf.square(q_sqrt) if q_sqrt.shape.rank == 2 else tf.matmul(q_sqrt, q_sqrt, transpose_b=True)


def _as_matrices(S: tf.Tensor) -> tf.Tensor:
    """[L, M, M], also of diagonals [M, L]."""
    return tf.linalg.diag(tf.transpose(S)) if S.shape.rank == 2 else S


def _added_variance(A: tf.Tensor, S: tf.Tensor) -> tf.Tensor:
    """A' S A, [B, L], for A [M, B] or [L, M, B] and S [L, M, M] or diagonals [M, L]."""
    if S.shape.rank == 3:
        return quadratic_form(A, S)
    if A.shape.rank == 2:
        return tf.matmul(tf.square(A), S, transpose_a=True)
    return tf.einsum("lmb,ml->bl", tf.square(A), S)


def _project_mean(A: tf.Tensor, q_mu: tf.Tensor) -> tf.Tensor:
    """A' q_mu, [B, L], for A [M, B] or [L, M, B]."""
    if A.shape.rank == 2:
        return tf.transpose(tf.matmul(q_mu, A, transpose_a=True))  # a small transpose instead of that of A
    return tf.transpose(tf.linalg.matvec(A, tf.transpose(q_mu), transpose_a=True))

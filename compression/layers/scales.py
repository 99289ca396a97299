"""Priors and posteriors of group scales z: normal-Jeffreys (Eqs. 5-11), horseshoe (Eqs. 12-20), none (sparse VD).

Each is a mixin of :class:`~compression.layers.base.BayesianLayer`; `layers.py` combines them with a linear map.
"""

import math
from typing import Any

import tensorflow as tf

from . import kl
from .base import BayesianLayer

__all__ = ["Horseshoe", "NormalJeffreys", "PerWeight"]

_TINY = 1e-30  # below the square of any scale in use: log 0 has no gradient


class NormalJeffreys(BayesianLayer):
    """p(z) ~ 1 / |z|, q(z) = N(z_mean, e^z_log_var), one z for each group (Sec. 4.1).

    :param kl: "approximate" (Eq. 9) or "exact" (Dawson's integral).
    """

    default_threshold = 3.0

    def __init__(self, *args: object, kl: str = "approximate", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kl = _checked_kl(kl)

    def _build_scales(self, kernel_shape: tuple[int, ...]) -> None:
        groups = self._groups_shape(kernel_shape)
        # q(z) begins at 1 with a small variance: the network begins as it is.
        self.z_mean_scaled = self.add_parameter("z_mean_scaled", groups, 1.0 / self.scale_speed)
        log_var = 2.0 * self.initial_log_std / self.scale_speed
        self.z_log_var_scaled = self.add_parameter("z_log_var_scaled", groups, log_var)

    @property
    def z_mean(self) -> tf.Tensor:
        """Mean of z, shape [groups]."""
        return self.scale_speed * tf.convert_to_tensor(self.z_mean_scaled)

    @property
    def z_log_var(self) -> tf.Tensor:
        """Log variance of z, shape [groups]."""
        return self.scale_speed * tf.convert_to_tensor(self.z_log_var_scaled)

    def log_alpha(self) -> tf.Tensor:
        """Log dropout rate log sigma_z^2 - log mu_z^2 of each group, shape [groups]."""
        return _log_alpha(self.z_mean, self.z_log_var)

    def prune_scores(self) -> tf.Tensor:
        """:meth:`log_alpha`, shape [groups]."""
        return self.log_alpha()

    def scale_moments(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of z."""
        return self.z_mean, tf.exp(self.z_log_var)

    def _scale_kl_parts(self) -> dict[str, tf.Tensor]:
        # Eq. (9), summed over the groups that are not masked.
        return {"scales": tf.reduce_sum(self.mask * _KL[self.kl](self.log_alpha()))}

    def _sample_scales(self, batch: tf.Tensor) -> tf.Tensor:
        noise = self._normal([batch, self.z_mean_scaled.shape[0]])
        return self.mask * (self.z_mean + tf.exp(0.5 * self.z_log_var) * noise)

    def get_config(self) -> dict[str, Any]:
        """For Keras: the arguments."""
        return {**super().get_config(), "kl": self.kl}


class Horseshoe(BayesianLayer):
    """z_i = sqrt(s_a s_b alpha_i beta_i), a half-Cauchy times a global half-Cauchy of scale tau0 (Sec. 4.2).

    All four are log-normal under q. Their parameters are stored divided by `scale_speed`, and the mean of log s_a
    relative to 2 log tau0, where its prior is.

    :param tau0: scale of the global prior; small values prune more.
    :param initial_scales: "beta" starts with s_a at its prior and beta_i large enough that E z = 1; "paper" starts with
        all means at 0 (E z = 1, too), so that s_a has 2 log tau0 to go and its KL is about tau0^-2 at first.
    :param paper_eq34: use Eq. (34) as printed, to compare; see :func:`compression.layers.kl.global_scale_kl`.
    """

    default_threshold = 4.0

    def __init__(
        self,
        *args: object,
        tau0: float = 1e-5,
        initial_scales: str = "beta",
        paper_eq34: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if not (math.isfinite(tau0) and tau0 > 0.0):
            raise ValueError(f"tau0 must be a positive number, got {tau0}; the paper has 1e-5.")
        if initial_scales not in ("beta", "paper"):
            raise ValueError(f'initial_scales must be "beta" or "paper", got {initial_scales!r}.')
        self.tau0 = float(tau0)
        self.initial_scales = initial_scales
        self.paper_eq34 = bool(paper_eq34)

    def _build_scales(self, kernel_shape: tuple[int, ...]) -> None:
        groups = self._groups_shape(kernel_shape)
        # -2 log tau0 on one of the four makes E log z = 0 at first: on beta, or on s_a, which is relative to its prior.
        shift = -2.0 * math.log(self.tau0) / self.scale_speed
        is_beta = self.initial_scales == "beta"
        log_var = 2.0 * self.initial_log_std / self.scale_speed
        for name, shape, mean in (
            ("s_a", (), 0.0 if is_beta else shift),
            ("s_b", (), 0.0),
            ("alpha", groups, 0.0),
            ("beta", groups, shift if is_beta else 0.0),
        ):
            setattr(self, f"{name}_mean_scaled", self.add_parameter(f"{name}_mean_scaled", shape, mean))
            setattr(self, f"{name}_log_var_scaled", self.add_parameter(f"{name}_log_var_scaled", shape, log_var))

    def _log_normal(self, name: str) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and log variance of log `name`; that of s_a is relative to 2 log tau0."""
        mean = getattr(self, f"{name}_mean_scaled")
        log_var = getattr(self, f"{name}_log_var_scaled")
        return self.scale_speed * tf.convert_to_tensor(mean), self.scale_speed * tf.convert_to_tensor(log_var)

    def _global(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of log s, Eq. (18)."""
        (mean_a, log_var_a) = self._log_normal("s_a")
        (mean_b, log_var_b) = self._log_normal("s_b")
        # s = sqrt(s_a s_b) is log-normal again; the stored mean of log s_a lacks 2 log tau0.
        return math.log(self.tau0) + 0.5 * (mean_a + mean_b), 0.25 * (tf.exp(log_var_a) + tf.exp(log_var_b))

    def _local(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of log z~, Eq. (18), each of shape [groups]."""
        (mean_a, log_var_a) = self._log_normal("alpha")
        (mean_b, log_var_b) = self._log_normal("beta")
        return 0.5 * (mean_a + mean_b), 0.25 * (tf.exp(log_var_a) + tf.exp(log_var_b))

    def log_z(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean mu_z and variance sigma_z^2 of log z = log s + log z~, each of shape [groups]."""
        (mean_s, var_s) = self._global()
        (mean, var) = self._local()
        return mean + mean_s, var + var_s

    def log_mode_score(self) -> tf.Tensor:
        """Negative log of the mode of z, sigma_z^2 - mu_z, shape [groups]."""
        mean, var = self.log_z()
        return var - mean

    def prune_scores(self) -> tf.Tensor:
        """:meth:`log_mode_score`, shape [groups]."""
        return self.log_mode_score()

    def scale_moments(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of z."""
        mean, var = self.log_z()
        # The moments of a log-normal: E z = e^(m + v / 2), Var z = (e^v - 1) (E z)^2.
        z_mean = tf.exp(mean + 0.5 * var)
        return z_mean, tf.math.expm1(var) * tf.square(z_mean)

    def _scale_kl_parts(self) -> dict[str, tf.Tensor]:
        # Eqs. (34) to (37): alpha and s_a have gamma priors, beta and s_b inverse gamma ones.
        local = kl.log_normal_gamma_kl(*self._log_normal("alpha"))
        local += kl.log_normal_inverse_gamma_kl(*self._log_normal("beta"))
        shared = kl.global_scale_kl(*self._log_normal("s_a"), self.tau0, paper_eq34=self.paper_eq34)
        shared += kl.log_normal_inverse_gamma_kl(*self._log_normal("s_b"))
        return {"scales": tf.reduce_sum(self.mask * local), "global_scale": shared}

    def _sample_scales(self, batch: tf.Tensor) -> tf.Tensor:
        (mean_s, var_s) = self._global()
        (mean, var) = self._local()
        # One draw of s for all groups of an example, and one of z~ for each.
        noise = self._normal([batch, 1 + mean.shape[0]])
        log_s = mean_s + tf.sqrt(var_s) * noise[:, :1]
        return self.mask * tf.exp(log_s + mean + tf.sqrt(var) * noise[:, 1:])

    def get_config(self) -> dict[str, Any]:
        """For Keras: the arguments."""
        return {
            **super().get_config(),
            "tau0": self.tau0,
            "initial_scales": self.initial_scales,
            "paper_eq34": self.paper_eq34,
        }


class PerWeight(BayesianLayer):
    """Sparse variational dropout (Molchanov et al., 2017): log-uniform prior on each weight, q(w) = N(mean, e^log_var).

    Every weight is its own group: `mask` and scores have the shape of the kernel, and the scale is 1.

    :param kl: "approximate" (Eq. 9) or "exact" (Dawson's integral).
    """

    default_threshold = 3.0
    _group_role = "kernel"

    def __init__(self, *args: object, kl: str = "approximate", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kl = _checked_kl(kl)

    def _groups_shape(self, kernel_shape: tuple[int, ...]) -> tuple[int, ...]:
        return kernel_shape

    def group_to_kernel(self, values: tf.Tensor) -> tf.Tensor:
        """One value for each group, in a shape that broadcasts against the kernel."""
        return tf.convert_to_tensor(values)

    def _build_scales(self, kernel_shape: tuple[int, ...]) -> None:
        pass

    def log_alpha(self) -> tf.Tensor:
        """Log dropout rate log sigma^2 - log mu^2 of each weight, of the shape of the kernel."""
        return _log_alpha(self.kernel_mean, self.kernel_log_var)

    def prune_scores(self) -> tf.Tensor:
        """:meth:`log_alpha`, of the shape of the kernel."""
        return self.log_alpha()

    def scale_moments(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of z."""
        return tf.ones_like(self.mask), tf.zeros_like(self.mask)

    def kl_parts(self) -> dict[str, tf.Tensor]:
        """The log-uniform KL of the weights that are not masked, in nats."""
        return {"weights": tf.reduce_sum(self.mask * _KL[self.kl](self.log_alpha()))}

    def _sample(self, inputs: tf.Tensor) -> tf.Tensor:
        # Local reparametrisation without scales; weights that are masked have neither mean nor variance.
        mean = self._linear(inputs, self.mask * self.kernel_mean)
        variance = self._linear(tf.square(inputs), self.mask * tf.exp(self.kernel_log_var))
        return self._add_noise(mean, variance, self._normal(tf.shape(mean)))

    def get_config(self) -> dict[str, Any]:
        """For Keras: the arguments."""
        return {**super().get_config(), "kl": self.kl}


_KL = {"approximate": kl.log_uniform_kl, "exact": kl.log_uniform_kl_exact}


def _checked_kl(name: str) -> str:
    if name not in _KL:
        raise ValueError(f'kl must be "approximate" (Eq. 9) or "exact", got {name!r}.')
    return name


def _log_alpha(mean: tf.Tensor, log_var: tf.Tensor) -> tf.Tensor:
    return log_var - tf.math.log(tf.maximum(tf.square(mean), _TINY))

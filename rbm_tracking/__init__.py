"""Restricted Boltzmann machines whose log partition function is tracked (Desjardins, Courville and Bengio 2011)."""

from rbm_tracking import evidence, report
from rbm_tracking.ais import AISResult, bracket, linear_schedule, paper_schedule, reverse_ais
from rbm_tracking.estimator import TrackedRBM
from rbm_tracking.evidence import EvidenceConfig
from rbm_tracking.exact import log_likelihood_exact, log_z_exact, moments_exact
from rbm_tracking.learning import (
    SMLConfig,
    SMLState,
    compiled_updates,
    initial_state,
    log_likelihood,
    log_likelihoods,
    spawn,
)
from rbm_tracking.learning_baselines import cd_step, pcd_step
from rbm_tracking.partition_tracker import PartitionTracker, Tracked
from rbm_tracking.rbm import RBM, base_rate_biases, energy, free_energy, hidden_probs, initial_rbm, visible_probs
from rbm_tracking.serialization import SavedRBM, load_rbm, save_rbm
from rbm_tracking.tempering import linear_ladder, sample
from rbm_tracking.tracker import flag_names
from rbm_tracking.training import Trainer

__all__ = [
    "RBM",
    "AISResult",
    "EvidenceConfig",
    "PartitionTracker",
    "SMLConfig",
    "SMLState",
    "SavedRBM",
    "Tracked",
    "TrackedRBM",
    "Trainer",
    "base_rate_biases",
    "bracket",
    "cd_step",
    "compiled_updates",
    "energy",
    "evidence",
    "flag_names",
    "free_energy",
    "hidden_probs",
    "initial_rbm",
    "initial_state",
    "linear_ladder",
    "linear_schedule",
    "load_rbm",
    "log_likelihood",
    "log_likelihood_exact",
    "log_likelihoods",
    "log_z_exact",
    "moments_exact",
    "paper_schedule",
    "pcd_step",
    "report",
    "reverse_ais",
    "sample",
    "save_rbm",
    "spawn",
    "visible_probs",
]

"""Plumbing shared by the training scripts: run folders, seeds, the training loop, checkpoints, scalars and flags.

Plain functions that know no models; a script may ignore any part of them, and no paper package imports them.
"""

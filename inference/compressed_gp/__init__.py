"""Compressed labels, Bayesian PCA targets, one Gaussian process a target: array cores."""

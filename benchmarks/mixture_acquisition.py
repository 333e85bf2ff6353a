"""How long the log-determinants of gp_b2m take over a pool, beside dense log-determinants in the same run.

    OPENBLAS_NUM_THREADS=1 python benchmarks/mixture_acquisition.py [--pool 5000] [--labels 983]

The mixture is random: rare labels, components with patterns of their own, weights from a sharp gate. Dense
means the covariance of each row and `numpy.linalg.slogdet` of it; it is timed on a few rows spread over the
pool (--dense, default 40) and extrapolated. Both add the same 1e-6 to D. Times are CPU seconds on one core.
The gate's moments (by the integral, standard deviations of f up to 2) are timed apart: both need them.
Exits with 1 where the low-rank form is not at least 50 times faster, or differs by more than 1e-8.
"""

import argparse
import sys
import time
from typing import Any

import numpy as np

from labelzoo.acquisition.label_covariance import EPS, log_determinants
from labelzoo.models.gp_bernoulli_mixture_gate import gate_moments

Array = Any
FASTER, GAP = 50.0, 1e-8


def dense(weights: Array, parts: Array, eps: float) -> Array:
    """Return ln |cov + eps I| of each row by its covariance."""
    out = np.empty(len(weights))
    for row, w in enumerate(weights):
        mean = w @ parts
        C = (parts.T * w) @ parts - np.outer(mean, mean)
        C[np.diag_indices_from(C)] = mean * (1 - mean) + eps
        out[row] = np.linalg.slogdet(C)[1]
    return out


def main() -> int:
    """Print times, their ratio and the largest difference; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pool", type=int, default=5000)
    parser.add_argument("--labels", type=int, default=983)
    parser.add_argument("--components", type=int, default=30)
    parser.add_argument("--dense", type=int, default=40, help="rows on which the dense form is timed")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    parts = rng.beta(0.3, 3.0, (options.components, options.labels))
    f = -6.0 + 3.0 * rng.standard_normal((options.pool, options.components))
    begin = time.process_time()
    weights = gate_moments(f, rng.uniform(0.0, 4.0, f.shape)).mean
    gate = time.process_time() - begin
    begin = time.process_time()
    quick = log_determinants(weights, parts, EPS)
    seconds = time.process_time() - begin
    some = np.unique(np.linspace(0, options.pool - 1, options.dense).round().astype(int))
    begin = time.process_time()
    slow = dense(weights[some], parts, EPS)
    each = (time.process_time() - begin) / len(some)
    ratio, gap = each * options.pool / seconds, float(np.abs(quick[some] - slow).max())
    print(f"pool {options.pool}, {options.labels} labels, {options.components} components")
    print(f"  low rank, whole pool        {seconds:8.2f} s   {1e3 * seconds / options.pool:.3f} ms a row")
    print(f"  dense, extrapolated         {each * options.pool:8.2f} s   {1e3 * each:.3f} ms a row", end="")
    print(f" of {len(some)} timed")
    print(f"  ratio {ratio:.0f} (at least {FASTER:.0f}); largest difference {gap:.1e} nats (at most {GAP:g})")
    print(f"  the gate's moments, whole pool {gate:5.2f} s")
    return int(ratio < FASTER or not gap <= GAP)


if __name__ == "__main__":
    sys.exit(main())

"""Is a regret of nothing called nothing? The exact posterior is judged as if it were an approximation.

Run ``python benchmarks/regret_calibration.py [--cases 100]``. Each case is a posterior of its own: three
latents that move 30 pool rows and 20 targets by random amounts, two labels; 6 replicates, batches of 4, 200
draws. Printed for each acquisition function: the mean excess over its own Monte Carlo error, the stated
standard errors (root mean square) over the spread of the excess between cases, and how often "loses" is said
at 5 % without a correction for the number of comparisons, which should be in one of twenty cases at most.
"""

import argparse

import numpy as np

from labelzoo.regret import Draws, find_usable, judge_engine, make_judge
from labelzoo.regret_run import ACQUIRE
from labelzoo.regret_text import verdict

POOL, TARGETS, LABELS, SAMPLES, REPLICATES, BATCH = 30, 20, 2, 200, 6, 4


def draws(rng: np.random.Generator, loads: np.ndarray) -> Draws:
    """Return exact draws of one case, `loads` (row, labels, latent)."""
    z = rng.standard_normal((SAMPLES, loads.shape[2]))
    probs = 1 / (1 + np.exp(-np.einsum("sk,nlk->snl", z, loads)))
    return Draws(probs[:, :POOL], probs[:, POOL:])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found: dict[str, list[tuple[float, float, bool]]] = {name: [] for name in ACQUIRE}
    for case in range(options.cases):
        rng = np.random.default_rng([options.seed, case])
        loads = rng.standard_normal((POOL + TARGETS, LABELS, 3)) * rng.gamma(1.0, 1.0, (POOL + TARGETS, 1, 1))
        sets = [[draws(rng, loads) for _ in range(4)] for _ in range(REPLICATES)]
        runs = [draws(rng, loads) for _ in range(REPLICATES)]
        for name in ACQUIRE:
            one = judge_engine(make_judge(find_usable(name), sets, BATCH, seed=case), runs)
            found[name].append((one.excess, one.excess_error, " loses " in verdict("Q", name, one, BATCH)))
    print(f"{options.cases} cases          mean excess / its error   stated error / spread   'loses'")
    for name, rows in found.items():
        excess, error, loses = (np.array(column) for column in zip(*rows, strict=True))
        z = excess.mean() / (excess.std(ddof=1) / np.sqrt(len(rows)))
        ratio = np.sqrt((error**2).mean()) / excess.std(ddof=1)
        print(f"{name:16s} {z:20.2f} {ratio:24.2f} {int(loses.sum()):14d}")


if __name__ == "__main__":
    main()

# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Exact against custom inference
#
# One published model, five ways to compute its posterior, on real data: 150 emoji and their 20 most frequent
# keywords. The hand-derived sampler and the two EM schemes are held against NUTS, which runs the same NumPyro
# program, and NUTS itself is believed only where its chains agree.

# %%
import arviz_stats
import numpy as np
import pandas as pd

import labelzoo
from labelzoo.data import load
from labelzoo.inference.compare.subset import small_subset

pd.set_option("display.max_colwidth", 100)
emoji = load("emoji")
data = small_subset(emoji, rows=150, labels=20, features=8, seed=0)
data.summary()

# %% [markdown]
# ## The program
#
# Each topic is a distribution over labels; a row's embedding is gamma given a regression on its features; a
# label is present when a Poisson count of rate `embedding @ topics` is positive. `summed` is what NUTS runs;
# `arrivals` makes the first arrival of every positive explicit, and the Gibbs conditionals are claims
# about it.

# %%
from labelzoo.models import registry

entry = registry.get("bernoulli_poisson_topics")
print("views:", ", ".join(entry.spec.views))
for update in entry.updates:
    print(f"{update.name:34} {' + '.join(update.sites):32} under {update.view}")

# %% [markdown]
# ## Five engines side by side
#
# `seconds` includes compilation, which is also shown apart. `upper` is the 95 % upper limit of the largest
# |difference of means| from NUTS, in posterior standard deviations, over functionals that do not depend on
# the order of the topics. A point estimate has no R-hat and no interval.

# %%
settings = dict(entry.spec.small_settings)
result = labelzoo.compare(
    "bernoulli_poisson_topics",
    data,
    ["gibbs", "map_em", "vb_em", "nuts", "svi"],
    engine_settings={
        "gibbs": {"num_warmup": 500, "num_samples": 1500},
        "nuts": {"num_warmup": 400, "num_samples": 600},
    },
    seed=0,
    **settings,
)
result.table.set_index("engine")[
    ["kind", "seconds", "compile_seconds", "max_rhat", "upper", "log_score", "verdict"]
]

# %% [markdown]
# ## Reading the topics
#
# Topics are exchangeable: chains number them differently, and a chain may swap them. `align` relabels every
# draw to match one pivot draw. Aligned draws are for looking; no verdict uses them.

# %%
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    aligned = labelzoo.align(result.trees["gibbs"])
topics = aligned["posterior"]["topics"].mean(("chain", "draw"))
pd.DataFrame(
    {
        f"topic {k}": [f"{data.label_names[j]} {row[j]:.2f}" for j in np.argsort(-row)[:6]]
        for k, row in enumerate(topics.values)
    }
)

# %% [markdown]
# ArviZ reads the same tree.

# %%
arviz_stats.summary(aligned, var_names=["shape", "topics"], kind="diagnostics").head(8)

# %% [markdown]
# ## Where EM stands
#
# EM answers with one point. Against the sampler its probabilities are close where the posterior is narrow;
# `max_difference` in the table says how far the worst functional is, in posterior standard deviations. Both
# schemes climb monotonically.

# %%
for name in ("map_em", "vb_em"):
    objective = result.trees[name]["optimization"]["objective"].values
    assert (np.diff(objective) >= -1e-9 * np.abs(objective[1:])).all()
    print(f"{name}: {objective.size} sweeps, objective {objective[0]:.1f} -> {objective[-1]:.1f}")

# %% [markdown]
# ## Save, load, predict
#
# A posterior is a netCDF file; it predicts in a new process without the training data.

# %%
import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:
    path = labelzoo.save(result.trees["gibbs"], Path(folder) / "gibbs.nc")
    again = labelzoo.load(path)
probs = labelzoo.mean_prob(again, result.test, num_draws=200)
pd.DataFrame(probs, index=result.test.example_names, columns=result.test.label_names).iloc[:5, :8].round(2)

# %% [markdown]
# ## What to label next
#
# Rows of the test part play the unlabelled pool. The score asks which row's labels would remove most
# predictive variance at the *other* rows, and each pick is conditioned on before the next.

# %%
from labelzoo.acquisition import next_rows

pool = labelzoo.add_predictions(result.trees["gibbs"], result.test, num_draws=400)
next_rows(pool, batch=5)

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
# # Check an update of your own
#
# You have a model and a conditional that you derived by hand. Is the algebra right? Here a mistake is made on
# purpose, found, explained and mended. `labelzoo new NAME` writes a file to do the same with your own model.

# %% [markdown]
# ## The program
#
# Logistic regression for every label; all weights share one precision. A label that nobody looked at
# (`observed` is False there) adds nothing.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.infer.util import log_density

import labelzoo
from labelzoo import ModelSpec, Mutant, Update

pd.set_option("display.max_colwidth", 120)


def program(X, Y, observed):
    labels = numpyro.plate("labels", Y.shape[1], dim=-1)
    precision = numpyro.sample("precision", dist.Gamma(2.0, 3.0))
    with labels:
        prior = dist.Normal(0.0, precision**-0.5).expand([X.shape[1]]).to_event(1)
        weights = numpyro.sample("weights", prior)
    with labels, numpyro.plate("obs", X.shape[0], dim=-2):
        law = dist.Bernoulli(logits=X @ weights.T).mask(True if observed is None else observed)
        numpyro.sample("Y", law, obs=Y)


card = ModelSpec(
    name="shared_precision",
    views={"summed": program},
    predict=lambda draw, X, constants: jax.nn.sigmoid(X @ draw["weights"].T),
    dims={"weights": ("labels", "feature"), "precision": ()},
)

# %% [markdown]
# ## The claim
#
# A conditional is written as the distribution that it claims, given the values of all other sites. For $m$
# weights, $p(\tau \mid w) \propto \tau^{2-1} e^{-3\tau} \cdot \tau^{m/2} e^{-\tau \sum w^2 / 2}$, so a Gamma.
# The version below counts every weight fully where it counts by half.


# %%
def precision_wrong(state, inputs):
    w = state["weights"]
    return dist.Gamma(2.0 + w.size, 3.0 + 0.5 * (w**2).sum())


def checked(given, mutants=()):
    update = Update("precision_given_weights", ("precision",), "summed", given, mutants=mutants)
    return labelzoo.check(card, updates=[update])


before = checked(precision_wrong)
print(before.sentence())
for row in before.checks:
    print(f"\n{row.kind}: {'ok' if row.passed else 'FAILED'}; {row.detail}")
    print(row.explanation)

# %% [markdown]
# The draws pass: they do follow the claimed density. The identity fails: for two values $a$, $b$ of the block
# $\log q(a) - \log q(b)$ should equal $\log p(a, \text{rest}) - \log p(b, \text{rest})$; no normalising
# constant is needed to see that it does not. The explanation says that the power of $\tau$ is too large by 4:
# the check ran on 4 labels and 2 features, so there are 8 weights, and each added 1 in place of 1/2.

# %% [markdown]
# ## Mended


# %%
def precision_given_weights(state, inputs):
    w = state["weights"]
    return dist.Gamma(2.0 + 0.5 * w.size, 3.0 + 0.5 * (w**2).sum())


after = checked(precision_given_weights)
print(after.sentence())
assert not before.passed
assert after.passed

# %% [markdown]
# ## The two claims in one picture
#
# Every point is a pair of values of the precision, at one of three settings of weights and labels. The points
# of a right claim lie on the diagonal, whatever the setting.


# %%
def log_ratios(given, seed, values):
    """Return log p(value, rest) - log p(first, rest) and the same of the claim, (value,) each."""
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((6, 2)), rng.integers(0, 2, (6, 4)).astype(float)
    inputs = {"X": X, "Y": Y, "observed": rng.random(Y.shape) < 0.8}
    state = {"weights": rng.standard_normal((4, 2))}
    joint = np.array(
        [log_density(program, (), inputs, {**state, "precision": jnp.asarray(v)})[0] for v in values]
    )
    claimed = np.asarray(given(state, inputs).log_prob(values))
    return joint - joint[0], claimed - claimed[0]


values = np.geomspace(0.1, 4.0, 12)
figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharex=True, sharey=True, layout="constrained")
shown = [("before: m for m/2", precision_wrong), ("after", precision_given_weights)]
for axis, (title, given) in zip(axes, shown, strict=True):
    with jax.enable_x64(True):
        pairs = [log_ratios(given, seed, values) for seed in (1, 2, 3)]
    for marker, (joint, claimed) in zip("o^s", pairs, strict=True):
        axis.plot(joint, claimed, marker, markersize=6, alpha=0.8)
    gap = max(np.abs(joint - claimed).max() for joint, claimed in pairs)
    print(f"{title}: largest distance from the diagonal {gap:.1e} nats")
    axis.axline((0, 0), slope=1, color="0.4", linestyle="--", linewidth=1, zorder=0)
    axis.set(title=title, xlabel="log ratio of the joint density, nats")
axes[0].set_ylabel("log ratio of the claimed density, nats")
axes[0].legend([f"weights and labels {i}" for i in (1, 2, 3)] + ["right claim"], frameon=False)
plt.show()

# %% [markdown]
# ## Would the check have noticed other mistakes?
#
# A check that passes is worth what it would have caught. Mistakes planted on purpose, *mutants*, tell; others
# are made automatically. The last one below is no mistake: it writes the same law in another way. It
# survives, and the report fails until it is taken out: a harmless survivor and a blind check look alike.


# %%
def gamma(shape, rate):
    """Return a mutant's claim from shape(m) and rate(sum of squares)."""
    return lambda state, inputs: dist.Gamma(shape(state["weights"].size), rate((state["weights"] ** 2).sum()))


mutants = (
    Mutant("prior forgotten", gamma(lambda m: 0.5 * m, lambda s: 0.5 * s)),
    Mutant("half of the squares dropped", gamma(lambda m: 2 + 0.5 * m, lambda s: 3 + s)),
    Mutant("scale for rate", gamma(lambda m: 2 + 0.5 * m, lambda s: 1 / (3 + 0.5 * s))),
    Mutant("one weight too few", gamma(lambda m: 2 + 0.5 * (m - 1), lambda s: 3 + 0.5 * s)),
    Mutant("the same law, written otherwise", gamma(lambda m: (4 + m) / 2, lambda s: (6 + s) / 2)),
)
report = checked(precision_given_weights, mutants)
print(report.sentence())
pd.DataFrame(
    [
        (row.mutant, "killed" if row.killed_by else "survives", row.killed_by or "-")
        for row in report.mutants
        if row.origin == "planted"
    ],
    columns=["mutant", "fate", "noticed by"],
).set_index("mutant")

# %% [markdown]
# The automatic ones, as many and some of them:

# %%
automatic = [row for row in report.mutants if row.origin == "automatic"]
print(f"{sum(row.killed_by is not None for row in automatic)} of {len(automatic)} killed, for instance:")
pd.DataFrame([(row.mutant, row.killed_by) for row in automatic[:6]], columns=["mutant", "noticed by"])

# %% [markdown]
# ## In a file of your own
#
#     labelzoo new my_model              # writes my_model.py: a program, two conditionals, one of them wrong
#     labelzoo check my_model.py:spec    # exit code 1, with the block and the slip
#
# `--tier full` adds more states, the Geweke joint test and simulation-based calibration.

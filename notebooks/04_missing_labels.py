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
# # Missing labels are not negatives
#
# In many data sets a label that is not ticked was never looked at. One may *leave such cells out*, where they
# are known, or *count them as zeros*, which is what keeping the positives alone comes to. It is one switch of
# the topic model: the second is `positives_only=True`, the treatment of Rai et al. (2015). Here you see what
# either does: first where the truth is known, then on emoji, then with a sampler's intervals.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.special import xlog1py, xlogy

import labelzoo
from labelzoo.data import LabelData, load, metrics

BLUE, RED, GREY = "#0072B2", "#D55E00", "0.55"
MODEL = "bernoulli_poisson_topics"
WAYS = {"left out": (False, BLUE), "counted as zeros": (True, RED)}

# %% [markdown]
# ## Data whose probabilities are known
#
# Rows drawn from the model itself: features give the rates of four topics, topics give labels. With the
# embedding integrated out, $p(y_l = 1 \mid x) = 1 - \prod_k (1 + v_{kl} e^{\psi_k})^{-1}$: the truth that
# predictions are held against, on rows that no fit sees.


# %%
def simulate(rng, rows, weights, topics):
    """Return features, labels and true label probabilities; shapes are 1, the last weight is the constant."""
    X = rng.standard_normal((rows, weights.shape[1] - 1))
    mean = np.exp(X @ weights[:, :-1].T + weights[:, -1])
    truth = 1 - np.exp(-np.log1p(mean[:, :, None] * topics).sum(axis=1))
    rate = (mean * rng.exponential(size=mean.shape)) @ topics
    return X, (rng.random(rate.shape) < -np.expm1(-rate)).astype(float), truth


def hide(X, Y, share, rng):
    """Return data in which exactly a `share` of the cells, chosen at random, is observed."""
    ranks = rng.permutation(Y.size).reshape(Y.shape)
    return LabelData.from_arrays(X, np.where(ranks < share * Y.size, Y, np.nan))


def log_score(Y, probs, cells=None):
    """Return nats a row: log probabilities of the labels, summed over `cells` (all, if None)."""
    each = xlogy(Y, probs) + xlog1py(1 - Y, -probs)
    return (each if cells is None else each * cells).sum() / len(Y)


rng = np.random.default_rng(0)
weights = np.column_stack([0.6 * rng.standard_normal((4, 5)), np.full(4, np.log(0.55))])
topics = rng.dirichlet(np.full(20, 0.25), 4)
X, Y, _ = simulate(rng, 2000, weights, topics)
X_new, Y_new, truth = simulate(rng, 1000, weights, topics)
print(f"{Y.shape[1]} labels, {Y.sum(axis=1).mean():.1f} positives a row, {len(X)} rows to fit")

# %% [markdown]
# ## Fit at several shares of observed cells
#
# Every fit is `vb_em` with the right number of topics; only the treatment of hidden cells differs.

# %%
AS_SIMULATED = {"shape": 1.0, "standardize": False, "scale_rows": False}
SHARES = [0.2, 0.4, 0.7, 1.0]
predicted, fits = {}, {}
for share in SHARES:
    data = hide(X, Y, share, np.random.default_rng(1))
    for way, (positives_only, _) in WAYS.items():
        if share == 1.0 and positives_only:  # nothing is hidden: the two are the same fit
            predicted[way, share] = predicted["left out", share]
            continue
        fits[way, share] = labelzoo.fit(
            MODEL, data, "vb_em", num_topics=4, positives_only=positives_only, **AS_SIMULATED
        )
        predicted[way, share] = labelzoo.mean_prob(fits[way, share], X_new)

figure, axes = plt.subplots(1, 2, figsize=(9, 4.3), sharex=True, sharey=True, layout="constrained")
bins = np.linspace(0, 1, 11)
which = np.clip(np.digitize(truth.ravel(), bins) - 1, 0, len(bins) - 2)
for axis, (way, (_, colour)) in zip(axes, WAYS.items(), strict=True):
    probs = predicted[way, SHARES[0]]
    axis.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--")
    axis.plot(truth.ravel()[::5], probs.ravel()[::5], ".", color=colour, ms=2.5, alpha=0.25)
    means = [
        [values[which == b].mean() for b in range(len(bins) - 1)] for values in (truth.ravel(), probs.ravel())
    ]
    axis.plot(*means, "o-", color="black", ms=4, lw=1)
    axis.set(title=f"hidden cells {way}", xlabel="true probability of a label", xlim=(0, 1), ylim=(0, 1))
axes[0].set_ylabel("predicted, from 20 % of the cells")
plt.show()

# %% [markdown]
# Every dot is a label of a new row, the black line the mean over cells of like truth. Left, predictions
# scatter near the diagonal and fall a little short at the top: a fifth of the labels means noise, and a pull
# towards the prior. Right they lie along another line altogether, whose slope is about the share of cells
# that were looked at.
#
# ## Only looking mends it
#
# A bias does not go away with more rows, only with a larger share of the cells looked at.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
at = 100 * np.array(SHARES)
for way, (_, colour) in WAYS.items():
    axes[0].plot(at, [predicted[way, s].sum(axis=1).mean() for s in SHARES], "o-", color=colour, label=way)
    axes[1].plot(at, [log_score(Y_new, predicted[way, s]) for s in SHARES], "o-", color=colour, label=way)
for axis, level in zip(axes, (truth.sum(axis=1).mean(), log_score(Y_new, truth)), strict=True):
    axis.axhline(level, color="black", lw=1, ls=":", label="truth")
    axis.set(xlabel="% of the cells observed", xlim=(15, 105))
    axis.spines[["top", "right"]].set_visible(False)
axes[0].set(ylabel="predicted labels a row", ylim=(0, None))
axes[1].set(ylabel="log score, nats a new row (higher is better)")
axes[0].legend(frameon=False, loc="lower right")
plt.show()

# %% [markdown]
# What is left of the blue line to the dotted one is no matter of hidden cells: `vb_em` has point topics and
# weights, and its bound costs a little even where every cell is observed.
#
# ## The same on emoji
#
# Real keywords of emoji, those that at least 20 emoji carry; 80 % of the training cells are hidden at random,
# test emoji are whole.

# %%
emoji = load("emoji")
emoji = emoji.subset(labels=np.flatnonzero(np.asarray(emoji.Y.sum(axis=0)).ravel() >= 20))
train, test = emoji.split(0.25, seed=0)
seen = np.random.default_rng(0).random((train.num_rows, train.num_labels)) < 0.2
partly = LabelData.from_arrays(
    train.X,
    np.where(seen, train.Y.toarray(), np.nan),
    label_names=train.label_names,
    feature_names=train.feature_names,
    example_names=train.example_names,
)
rows, on_emoji = {}, {}
for way, (positives_only, _) in WAYS.items():
    on_emoji[way] = labelzoo.fit(MODEL, partly, "vb_em", num_topics=20, positives_only=positives_only)
    probs = labelzoo.mean_prob(on_emoji[way], test)
    rows[way] = {
        "predicted labels a row": probs.sum(axis=1).mean(),
        "true labels a row": test.Y.sum() / test.num_rows,
        "log score": metrics.log_score(test.Y, probs).value,
        "AUC within a row": metrics.per_example_auc(test.Y, probs).value,
        "AUC within a label": metrics.macro_auc(test.Y, probs).value,
    }
pd.DataFrame(rows).T.round(3)

# %% [markdown]
# Note which columns suffer. AUC only asks for the *order* of labels or rows, and cells hidden at random thin
# all of them out alike: the order hardly changes, and whoever looks at AUC alone sees no harm. The
# probabilities themselves are wrong by a factor. Where labels are hidden for a reason (rare ones are never
# looked for, say) not even the order is safe, and leaving cells out is no cure either, since the model has no
# part for *why* a cell is hidden.
#
# ## A sampler's intervals
#
# Posterior draws say how sure they are. Where hidden cells count as zeros they are sure, and wrong. A small
# problem, 40 % of the cells observed: 90 % intervals of the label probabilities of 300 new rows.

# %%
rng = np.random.default_rng(3)
small_weights = np.column_stack([0.7 * rng.standard_normal((2, 2)), np.full(2, 0.5)])
small_topics = rng.dirichlet(np.full(8, 0.5), 2)
X_small, Y_small, truth_small = simulate(rng, 200, small_weights, small_topics)
X_later, _, truth_later = simulate(rng, 300, small_weights, small_topics)
small = hide(X_small, Y_small, 0.4, np.random.default_rng(4))
draws, hidden_draws, intervals, coverage = {}, {}, {}, {}
for way, (positives_only, _) in WAYS.items():
    tree = labelzoo.fit(
        MODEL, small, "gibbs", num_topics=2, topic_concentration=0.5, positives_only=positives_only,
        num_chains=2, num_warmup=400, num_samples=800, **AS_SIMULATED,
    )  # fmt: skip
    draws[way] = labelzoo.label_prob(tree, X_later, num_draws=800).values.reshape(-1, *truth_later.shape)
    hidden_draws[way] = labelzoo.label_prob(tree, X_small, num_draws=800).values.reshape(-1, *Y_small.shape)
    low, high = np.quantile(draws[way], [0.05, 0.95], axis=0)
    intervals[way] = low, high
    coverage[way] = ((low <= truth_later) & (truth_later <= high)).mean()

figure, axes = plt.subplots(1, 2, figsize=(9, 3.9), layout="constrained", width_ratios=[1, 1.5])
hidden = np.argwhere(~small.observed_mask())
row, label = hidden[np.abs(truth_small[tuple(hidden.T)] - 0.5).argmin()]
for way, (_, colour) in WAYS.items():
    values = hidden_draws[way][:, row, label]
    axes[0].hist(values, bins=np.linspace(0, 1, 41), density=True, color=colour, alpha=0.6, label=way)
    axes[0].plot(np.quantile(values, [0.05, 0.95]), [-0.35, -0.35] if colour == BLUE else [-0.7, -0.7],
                 color=colour, lw=3)  # fmt: skip
axes[0].axvline(truth_small[row, label], color="black", ls=":", label="truth")
axes[0].set(yticks=[], xlabel="probability", title=f"label {label} of row {row}, hidden; bars: 90 %")
axes[0].legend(frameon=False, fontsize=8, loc="upper right")
order = np.argsort(truth_later.ravel())
shown = order[np.linspace(0, order.size - 1, 60).astype(int)]
for way, (_, colour) in WAYS.items():
    low, high = (bound.ravel()[shown] for bound in intervals[way])
    axes[1].vlines(np.arange(60) + (0.2 if colour == RED else -0.2), low, high, color=colour, lw=2)
axes[1].plot(truth_later.ravel()[shown], ".", color="black", ms=5)
axes[1].set(
    xticks=[],
    xlabel="60 labels of new rows, by true probability",
    ylim=(0, 1),
    title="90 % intervals, and the truth",
)
plt.show()
pd.DataFrame(
    {
        way: {
            "share of 90 % intervals that hold the truth": coverage[way],
            "mean width": np.mean(intervals[way][1] - intervals[way][0]),
            "labels a row": draws[way].mean(axis=0).sum(axis=1).mean(),
        }
        for way in WAYS
    }
    | {"truth": {"labels a row": truth_later.sum(axis=1).mean()}}
).T.round(3)

# %% [markdown]
# This is one data set, whose cells share a handful of parameters: the share in the first column is not a mean
# of independent trials, and would be nearer to or farther from 90 % on another. The calibration bench
# (`labelzoo check bernoulli_poisson_topics --tier full`) averages over many.
#
# ## Filling in what is missing
#
# A row of the training data often has *some* labels. They say more about its missing ones than its features
# do, since they tell about its embedding. `labelzoo.complete` integrates the embedding out given the known
# labels, exactly where few are positive, instead of taking the embedding's draw or estimate as if it were
# known (Rao-Blackwell: the same mean with less noise). Each label carries its error.


# %%
def hidden_score(tree, data, labels):
    """Return the log score on the hidden cells of `data`: from features only, and given known labels."""
    cells = ~data.observed_mask()
    given = labelzoo.complete(tree, data)
    table = {"features only": labelzoo.mean_prob(tree, data), "and known labels": given["prob"].values}
    return {name: log_score(labels, probs, cells) for name, probs in table.items()}, given


filled = {}
for share in SHARES[1:3]:
    data = hide(X, Y, share, np.random.default_rng(1))
    name = f"simulated, {share:.0%} observed"
    filled[name], given = hidden_score(fits["left out", share], data, Y)
print("how rows were done:", pd.Series(given["method"].values).value_counts().to_dict())
print("largest error of a probability:", f"{float(given['error'].max()):.3f}")
filled["emoji, 20 % observed"], _ = hidden_score(on_emoji["left out"], partly, train.Y.toarray())
gain = pd.DataFrame(filled).T
gain["gain, nats a row"] = gain["and known labels"] - gain["features only"]
gain.round(3)

# %% [markdown]
# Known labels can only help where there are some, and where the topics that they speak through are right.
# With a fifth of emoji's cells observed most rows have no known positive, and topics learnt from so little
# are taken at their word, for `vb_em` gives a point. Whether completing pays is a question to the data at
# hand; `python benchmarks/conditioning.py` asks it with half of the labels known.
#
# ## What to take home

# %%
low, (out, zero) = SHARES[0], WAYS
few = {way: predicted[way, low].sum(axis=1).mean() / truth.sum(axis=1).mean() for way in WAYS}
score = {way: log_score(Y_new, predicted[way, low]) for way in WAYS}
auc = {way: rows[way]["AUC within a row"] for way in WAYS}
print(
    f"With {low:.0%} of the cells observed, predictions that leave hidden cells out add up to "
    f"{few[out]:.0%} of the true number\nof labels, those that count them as zeros to {few[zero]:.0%}.\n"
    f"On new simulated rows that is {score[out]:.2f} against {score[zero]:.2f} nats a row (truth: "
    f"{log_score(Y_new, truth):.2f}); on emoji {rows[out]['log score']:.2f}\nagainst "
    f"{rows[zero]['log score']:.2f}, while the AUC within a row is {auc[out]:.3f} against {auc[zero]:.3f}.\n"
    f"Of the sampler's 90 % intervals, {coverage[out]:.0%} against {coverage[zero]:.0%} hold the truth."
)
assert few[zero] < 0.5 < few[out]
assert rows[out]["log score"] > rows[zero]["log score"]

# %% [markdown]
# If you know which cells were looked at, write NaN into the others: unobserved is the default treatment in
# every engine, and costs nothing. If you do not know, positives-only still ranks; do not read its numbers as
# probabilities, unless a set of rows that were looked at completely is there to recalibrate them
# (`labelzoo.calibrate`).

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
# # Label components
#
# A mixture says that every row carries one of a few *patterns* of labels, and a Gaussian process says which
# pattern is likely where in the space of features (Shi, Yu and Yu, NeurIPS 2021, corrected as on the errata
# page). Such a model has something that separate classifiers lack: the covariance of all labels of a new row,
# exactly. This notebook shows the patterns, that covariance, and what the paper's rule "ask where it is
# largest" does with it. `docs/gp_bernoulli_mixture.md` has the formulas and the measurements.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import labelzoo
from labelzoo.acquisition import ask
from labelzoo.acquisition.label_covariance import eta_at, log_determinants
from labelzoo.data import LabelData, load
from labelzoo.inference.predict import mixture_law

BLUE, RED, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "0.55"
MODEL = "gp_bernoulli_mixture"

# %% [markdown]
# ## Labels in the plane
#
# The data of the paper's section 4.1, with coordinates of our own since it gives none. `G1` to `G8` are
# discs, `C1` says "in exactly one of them", `C2` "in two or more", `O1` to `O4` are overlaps of two
# neighbours. `E1` is a large disc, inside of which `E2` and `E3` are coins that come up 30 % of the time,
# and `E4` is `E3` without `E2`: a rare label that no feature tells apart from `E1`.


# %%
def plane(seed, size):
    """Return (features, labels) of random points of the square."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (size, 2))
    coins = rng.uniform(size=(size, 2)) < 0.3
    turn = np.arange(8) * np.pi / 4
    centres = 0.6 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    G = np.linalg.norm(X[:, None] - centres, axis=2) <= 0.35
    count, E1 = G.sum(axis=1), np.linalg.norm(X - [0.3, 0.0], axis=1) <= 0.7
    E2, E3 = E1 & coins[:, 0], E1 & coins[:, 1]
    rest = [count == 1, count >= 2, *(G[:, ::2] & G[:, 1::2]).T, E1, E2, E3, E3 & ~E2]
    return X, np.column_stack([G, *rest]).astype(int)


names = [f"G{i}" for i in range(1, 9)] + ["C1", "C2"] + [f"{a}{i}" for a in "OE" for i in range(1, 5)]
X, Y = plane(0, 150)
X_new, Y_new = plane(1, 2000)
data = LabelData.from_arrays(X, Y, label_names=names)
posterior = labelzoo.fit(MODEL, data, engine="structured", num_components=10, length_factor=0.15, seed=0)
probs = labelzoo.mean_prob(posterior, X_new)
print(posterior.attrs["message"])

# %% [markdown]
# ## The components
#
# Each column of the picture is a component: the probability of each label in it. `positive` and `negative` of
# the group `engine_state` are the two parameters of its beta law; their sum counts the rows it stands for.

# %%
state = {name: values.values for name, values in posterior["engine_state"].items()}
theta = state["positive"] / (state["positive"] + state["negative"])
rows_of = state["responsibility"].sum(axis=0)
order = np.argsort(-rows_of)


def heat_map(theta, rows_of, names, axis):
    """Draw label probabilities (component, labels) as a table of colours."""
    shown = axis.imshow(theta.T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set_xticks(range(len(theta)), [f"{n:.0f}" for n in rows_of], fontsize=8)
    axis.set_xlabel("component, by the number of rows it stands for")
    axis.figure.colorbar(shown, ax=axis, label="probability of the label")


figure, axis = plt.subplots(figsize=(7, 5.2), layout="constrained")
heat_map(theta[order], rows_of[order], names, axis)
plt.show()

# %% [markdown]
# Components without rows (on the right) keep their prior, here each label's frequency: far from all data,
# where the gate is open, predictions are drawn to it.
#
# Where are they? Below left, the likeliest component of each new point; right, the probability of `E4`.
# Within the disc of `E1` it should be .21 everywhere, since nothing there tells an `E4` from the others, and
# no score of features alone has an AUC above .835. The mixture finds the disc, and reads too much into a
# dozen examples.

# %%
law = mixture_law(posterior, X_new)
figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
axes[0].scatter(*X_new.T, c=law.weights.argmax(axis=1), cmap="tab10", vmin=0, vmax=9, s=8)
axes[0].set_title("likeliest component")
shown = axes[1].scatter(*X_new.T, c=probs[:, -1], cmap="viridis", s=8)
axes[1].scatter(*X[Y[:, -1] == 1].T, facecolors="none", edgecolors=RED, s=60, label="E4 in training")
axes[1].legend(loc="lower left")
axes[1].set_title("probability of E4")
figure.colorbar(shown, ax=axes[1])
for axis in axes:
    axis.set_aspect("equal")
plt.show()

# %% [markdown]
# Against one logistic regression a label, with the two coordinates as features (the paper's comparison)
# and with radial functions of them (a fairer one): the mean AUC of each group of labels. One sample of
# 150 rows; `benchmarks/mixture_synthetic.py` repeats this with error bars.


# %%
def radial(A, B):
    """Return Gaussian bumps at the rows of B: (a, b)."""
    return np.exp(-((A[:, None] - B) ** 2).sum(axis=2) / (2 * 0.3**2))


def logistic(features, new):
    """Return P(label = 1) by one logistic regression a label; the frequency where a label has one value."""
    out = np.empty((len(new), Y.shape[1]))
    for j, y in enumerate(Y.T):
        varies = 0 < y.sum() < len(y)
        fit = LogisticRegression(C=10.0, max_iter=1000).fit(features, y) if varies else None
        out[:, j] = fit.predict_proba(new)[:, 1] if varies else y.mean()
    return out


groups = {"G": range(8), "C": range(8, 10), "O": range(10, 14), "E": range(14, 18), "E4": [17]}
methods = {
    "mixture": probs,
    "logistic": logistic(X, X_new),
    "logistic, radial": logistic(radial(X, X), radial(X_new, X)),
}
pd.DataFrame(
    {
        method: {
            group: np.mean([roc_auc_score(Y_new[:, j], p[:, j]) for j in at]) for group, at in groups.items()
        }
        for method, p in methods.items()
    }
).round(3)

# %% [markdown]
# ## What each half of the criterion asks for
#
# The paper asks the row with the largest `ln |cov| + eta mean Var[pi]`: the log determinant of the
# covariance of its labels, and how little its features say about its component. Both are maps of the
# plane, and each on its own picks rows. The first does not go where data are missing but where many
# labels are in doubt. The second goes where the gate is open: to the borders of components and to places
# without data.

# %%
pool, _ = plane(2, 600)
candidates = LabelData.from_arrays(pool, np.full((600, 18), np.nan), label_names=names)
law = mixture_law(posterior, pool)
place = {name: i for i, name in enumerate(candidates.example_names)}
logdet = log_determinants(law.weights, law.parts, eps=1e-6)
eta = eta_at(len(X), eta0=10.0, eta_inf=1.0)  # the default of gp_b2m: falls with the number of labelled rows
halves = {
    "label_logdet": logdet,
    "gate_variance": law.weight_variance,
    "gp_b2m": logdet + eta * law.weight_variance,
}
figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
for axis, (name, values) in zip(axes, halves.items(), strict=True):
    asked = ask(posterior, candidates, acquire=name, batch=12, labelled=data)
    picked = pool[[place[one] for one in asked["obs"]]]
    axis.scatter(*pool.T, c=values, cmap="viridis", s=14)
    axis.scatter(*X.T, c="white", edgecolors=GREY, s=16, linewidths=0.6)
    axis.scatter(*picked.T, facecolors="none", edgecolors=RED, s=90, linewidths=1.8)
    axis.set_title(f"{name}: red is asked, white is known", fontsize=9)
    axis.set_aspect("equal")
plt.show()

# %% [markdown]
# Does it help? On real data, with one evaluator for all, not measurably: see the races in
# `docs/gp_bernoulli_mixture.md` before using it.
#
# ## Emoji
#
# The same with readable labels: keywords that occur at least 25 times, and every other emoji that has one.

# %%
emoji = load("emoji")
emoji = emoji.subset(labels=np.flatnonzero(np.asarray(emoji.Y.sum(axis=0)).ravel() >= 25))
emoji = emoji.subset(rows=np.flatnonzero(np.asarray(emoji.Y.sum(axis=1)).ravel() > 0)[::2])
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    train, test = emoji.split(0.25, seed=0)
print(train)
posterior = labelzoo.fit(MODEL, train, engine="structured", num_components=16, seed=0)
state = {name: values.values for name, values in posterior["engine_state"].items()}
theta = state["positive"] / (state["positive"] + state["negative"])
rows_of = state["responsibility"].sum(axis=0)
order = np.argsort(-rows_of)
frequent = np.argsort(-theta.max(axis=0))[:30]
frequent = frequent[np.argsort(theta[order][:, frequent].argmax(axis=0))]
figure, axis = plt.subplots(figsize=(8, 7), layout="constrained")
heat_map(theta[order][:, frequent], rows_of[order], np.array(train.label_names)[frequent], axis)
plt.show()

# %% [markdown]
# ## The labels of one emoji together
#
# The covariance of a row's labels is exact under the fitted factors: `diag` is `p (1 - p)`, and off the
# diagonal stands what belongs together. Here for the new emoji whose labels are the most correlated: the
# eight labels with the largest variance.

# %%
law = mixture_law(posterior, test)


def strength(row):
    """Return the largest covariance of two labels."""
    C = law.covariance(row)
    return np.abs(C - np.diag(np.diag(C))).max()


row = max(range(test.num_rows), key=strength)
C = law.covariance(row)
top = np.argsort(-np.diag(C))[:8]
deviation = np.sqrt(np.diag(C))[top]
labels = np.array(test.label_names)[top]
own = np.array(test.label_names)[test.Y[[row]].toarray()[0] == 1]
print(f"{test.example_names[row] if test.example_names else row}: labelled {', '.join(own)}")
figure, axis = plt.subplots(figsize=(5.6, 4.6), layout="constrained")
shown = axis.imshow(C[np.ix_(top, top)] / np.outer(deviation, deviation), cmap="RdBu_r", vmin=-1, vmax=1)
axis.set_xticks(range(8), labels, rotation=60, ha="right")
axis.set_yticks(range(8), labels)
figure.colorbar(shown, ax=axis, label="correlation")
plt.show()

# %% [markdown]
# A label in doubt takes its companions with it: once one of them is known, the others move, and
# `law.weights` by Bayes' rule says how far.

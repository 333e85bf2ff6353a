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
# # Class kernels
#
# Every class gets a kernel of its own, as near to one prior kernel as it can be while each labelled row
# resembles its own class enough and the others little enough (Jain and Kapoor, CVPR 2009; our readings of it
# are on the errata page). The shares of a row's similarities are probabilities of its classes, and the row
# whose largest share is smallest is the one to ask about next. This notebook shows the kernels, two ways to
# the same optimum, the Bayesian version that the paper does not have, what hard constraints do to classes
# that overlap, and the choice of rows. `docs/kernel_neighbors.md` has the formulas and the measurements.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import labelzoo
from labelzoo.acquisition import ask
from labelzoo.data import LabelData
from labelzoo.inference.kernel_neighbors import classified
from labelzoo.inference.kernel_neighbors.answers import fits_of
from labelzoo.inference.kernel_neighbors.predict import kernel

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]
NAMES = ["far", "left", "right", "ring"]
MODEL = "kernel_neighbors"

# %% [markdown]
# ## Four classes in the plane
#
# Two clouds that overlap, one ring around them and one far away.


# %%
def plane(seed, rows):
    """Return features and classes of random points."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=rows)
    centre = np.array([[3.2, 2.5], [-0.5, 0], [0.5, 0], [0, 0]])[y]
    X = centre + 0.55 * rng.standard_normal((rows, 2))
    angle, ring = rng.uniform(0, 2 * np.pi, rows), y == 3
    radius = 2.2 + 0.25 * rng.standard_normal(rows)
    X[ring] = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)[ring]
    return X, y


def as_labels(X, y):
    """Return rows with one label each."""
    return LabelData.from_classes(X, np.array(NAMES)[y], classes=NAMES)


X, y = plane(0, 80)
X_new, y_new = plane(1, 2000)
data = as_labels(X, y)

# %% [markdown]
# ## Two ways to one optimum
#
# `bregman` projects one row's constraints after another, as the paper does; `dual` solves for all multipliers
# at once. Both form no class kernel. The gap says how far from the optimum the divergence can still be.

# %%
points = {engine: labelzoo.fit(MODEL, data, engine=engine) for engine in ("bregman", "dual")}
for engine, posterior in points.items():
    print(f"{engine}: {posterior.attrs['message']}")
difference = points["bregman"]["posterior"]["coefficients"] - points["dual"]["posterior"]["coefficients"]
print(f"largest difference of coefficients {float(np.abs(difference).max()):.1e}")

# %% [markdown]
# The kernels can be looked at, formed on demand; rows are sorted by class. Each differs from the prior in two
# directions only. The constraints are on shares, so it is cheaper to take similarity away than to add it:
# where classes overlap, the block of a class is paler in its own kernel than in the prior, and what it shares
# with others is paler still.

# %%
fit = fits_of(points["dual"])[0]
order = np.argsort(y, kind="stable")
middles = [np.flatnonzero(y[order] == c).mean() for c in range(4)]
K0 = fit.problem.K0
shown = [K0, *(kernel(fit, c, K0, K0, K0) for c in range(4))]
figure, axes = plt.subplots(1, 5, figsize=(14, 3.1), layout="constrained")
for axis, K, title in zip(axes, shown, ["prior", *data.label_names], strict=True):
    image = axis.imshow(K[np.ix_(order, order)], cmap="RdBu_r", vmin=-1.5, vmax=1.5)
    axis.set_title(title)
    axis.set_xticks(middles, data.label_names, fontsize=7)
    axis.set_yticks(middles, data.label_names, fontsize=7)
figure.colorbar(image, ax=axes, shrink=0.8)
plt.show()

# %% [markdown]
# ## The Bayesian version
#
# The prior of a kernel is a Wishart law whose mode is the prior kernel, and the projection is the mode of the
# program. NUTS draws instead: all that prediction reads of a kernel are its similarities to the rows of the
# class, and what is left of it can be integrated out.

# %%
draws = labelzoo.fit(MODEL, data, engine="nuts", seed=0, num_warmup=300, num_samples=300, num_chains=2)
table = {}
Y_new = np.eye(4)[y_new]
for name, posterior in {**points, "nuts": draws}.items():
    probs = labelzoo.mean_prob(posterior, X_new)
    table[name] = {
        "accuracy": (probs.argmax(axis=1) == y_new).mean(),
        "log score": np.log((probs * Y_new).sum(axis=1)).mean(),
        "largest share": probs.max(axis=1).mean(),
    }
plain = GaussianProcessClassifier(ConstantKernel(1.0) * RBF(1.0), random_state=0).fit(X, y)
probs = plain.predict_proba(X_new)
table["Gaussian processes, one against the rest"] = {
    "accuracy": (probs.argmax(axis=1) == y_new).mean(),
    "log score": np.log((probs * Y_new).sum(axis=1)).mean(),
    "largest share": probs.max(axis=1).mean(),
}
pd.DataFrame(table).T.round(3)

# %% [markdown]
# The shares are timid: the constraints ask that a row's own class has a share of $1.25 / C$, not that it is
# sure of it. They order the classes nearly as well as classifiers by Gaussian processes do; as probabilities
# they are too near to one another, and averaging over kernels mends a part of that only.

# %%
grid = np.stack(np.meshgrid(np.linspace(-3.5, 5, 120), np.linspace(-3.5, 4.5, 120)), axis=-1)
figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", sharey=True)
for axis, (name, posterior) in zip(axes, {"dual": points["dual"], "nuts": draws}.items(), strict=True):
    largest = labelzoo.mean_prob(posterior, grid.reshape(-1, 2)).max(axis=1).reshape(120, 120)
    contour = axis.contourf(
        grid[..., 0], grid[..., 1], largest, levels=np.linspace(0.25, 1, 16), cmap="Greys"
    )
    for c, (colour, label) in enumerate(zip(COLOURS, NAMES, strict=True)):
        axis.scatter(*X[y == c].T, c=colour, s=25, edgecolor="white", linewidth=0.5, label=label)
    axis.set_title(f"largest share, {name}")
axes[0].legend(loc="upper left", fontsize=8)
figure.colorbar(contour, ax=axes, shrink=0.8)
plt.show()

# %% [markdown]
# ## Three rules
#
# The paper classifies by the mean similarity, by the nearest row under each class's own kernel, or by support
# vector machines on the class kernels.

# %%
for rule in ("similarity", "neighbors", "svm"):
    found = classified(points["dual"], X_new, rule=rule).argmax(axis=1)
    print(f"{rule:10} accuracy {(found == y_new).mean():.3f}")

# %% [markdown]
# ## Hard constraints
#
# Without `gamma` every constraint must hold. Where classes overlap the optimum meets them by taking all
# similarity from contested rows. Rows that are the same and of different classes are refused outright.

# %%
for gamma in (1.0, 100.0, None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a total is not positive is what is printed
        posterior = labelzoo.fit(MODEL, data, engine="dual", gamma=gamma)
    total = fits_of(posterior)[0].similarity.sum(axis=1)
    prior = fits_of(posterior)[0].problem.kv.sum(axis=1)
    print(f"gamma {gamma}: the least total similarity is {max((total / prior).min(), 0):.3f} of the prior's")

twice = as_labels(np.vstack([X, X[:1]]), np.r_[y, (y[0] + 1) % 4])
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labelzoo.fit(MODEL, twice, engine="dual", gamma=None)
except ValueError as error:
    print(f"refused: {error}")

# %% [markdown]
# ## What to label next
#
# `max_probability` asks where the largest share is smallest. It does not look at how the rows of a batch
# resemble one another, so that they come in clusters.

# %%
open_rows = LabelData.from_arrays(X_new[:300], np.full((300, 4), np.nan), label_names=data.label_names)
place = {name: i for i, name in enumerate(open_rows.example_names)}
figure, axis = plt.subplots(figsize=(6, 4.4), layout="constrained")
axis.scatter(*X_new[:300].T, c="0.85", s=12)
for c, (colour, label) in enumerate(zip(COLOURS, NAMES, strict=True)):
    axis.scatter(*X[y == c].T, c=colour, s=22, label=label)
for name, marker in (("max_probability", "*"), ("random", "x")):
    asked = ask(points["dual"], open_rows, acquire=name, batch=10, seed=0)
    rows = [place[one] for one in asked["obs"]]
    axis.scatter(*X_new[rows].T, marker=marker, c="black", s=90 if marker == "*" else 40, label=name)
axis.legend(fontsize=8)
plt.show()

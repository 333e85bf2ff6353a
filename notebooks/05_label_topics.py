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
# # Label topics
#
# Labels come together: who tags *cat* tags *animal*. A topic model says so in distributions over labels, and
# each row mixes a few of them. This notebook fits topics to the keywords of emoji, reads and names them, asks
# which of them would come again, and how many there should be. The answer depends on what they are for.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import Image, display
from scipy.optimize import linear_sum_assignment
from scipy.special import xlog1py, xlogy

import labelzoo
from labelzoo.data import LabelData, load, metrics
from labelzoo.topics import name_topics, topic_table
from labelzoo.topics_picture import topics_png

pd.set_option("display.max_colwidth", 90)
BLUE, RED, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "0.55"
MODEL = "bernoulli_poisson_topics"

emoji = load("emoji")
emoji = emoji.subset(labels=np.flatnonzero(np.asarray(emoji.Y.sum(axis=0)).ravel() >= 15))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # some keywords are so rare that the test part has none
    train, test = emoji.split(0.2, seed=0)
print(train)

# %% [markdown]
# ## Twenty topics to read

# %%
fits = {20: labelzoo.fit(MODEL, train, "vb_em", num_topics=20, seed=0)}
table = topic_table(fits[20], 6)


def listed(pairs, digits):
    """Return (label, number) pairs as words."""
    return ", ".join(f"{name} {value:.{digits}g}" for name, value in pairs[:5])


pd.DataFrame(
    {
        "name": table["name"],
        "share": table["weight"].map("{:.1%}".format),
        "probable": [listed(pairs, 2) for pairs in table["probable"]],
        "coherence": table["coherence"].round(2),
        "labels in use": table["effective_labels"].round(1),
    }
)

# %% [markdown]
# `share` is the part of all positives that the topic explains. `labels in use` is the exponential of the
# topic's entropy. `coherence` counts whether the topic's probable labels occur *together* in rows (NPMI: 1 if
# always, 0 if by chance, -1 if never): a topic of low coherence is a drawer for what is left over. A topic of
# share 0 that has all labels in use is empty: the data did not need it.
#
# A topic's most probable labels may be probable everywhere. The *distinctive* ones are ordered by their part
# of the divergence from the overall shares; the name is made of the first of them.

# %%
used = table[table["weight"] > 0.01].sort_values("coherence", ascending=False)
for _, topic in used.iloc[[0, 1, -1]].iterrows():
    print(f"{topic['name']}  (coherence {topic['coherence']:+.2f})")
    print("   probable:   ", listed(topic["probable"], 2))
    print("   distinctive:", ", ".join(f"{name} x{lift:.2g}" for name, lift in topic["distinctive"][:5]))

# %%
display(Image(topics_png(table, 6)))

# %% [markdown]
# ## Names as coordinates
#
# With names in place of numbers, everything about a topic is found by name: here the groups and the words of
# the Unicode name (w) whose weights call two of them up.

# %%
named = name_topics(fits[20])["posterior"].to_dataset().isel(chain=0, draw=0)
for name in table["name"].iloc[[0, 3]]:
    weights = named["weights"].sel(topic=name).to_series()
    weights = weights[weights.index.str.startswith(("group=", "w:"))]
    print(f"{name}: {', '.join(map(str, weights.sort_values(ascending=False).index[:6]))}")

# %% [markdown]
# ## Would they come again?
#
# Topics are a local optimum of a problem with many. Fits from other seeds are matched to the first by the
# best pairing of cosines; a topic that only one start finds is not to be built upon.


# %%
def unit(V):
    """Return topics scaled to length one."""
    return V / np.linalg.norm(V, axis=1, keepdims=True)


def topics_of(tree):
    """Return V of a point estimate, (topic, labels)."""
    return tree["posterior"]["topics"].values[0, 0]


again = {}
for seed in (1, 2, 3):
    other = labelzoo.fit(MODEL, train, "vb_em", num_topics=20, seed=seed)
    cosine = unit(topics_of(fits[20])) @ unit(topics_of(other)).T
    mine, theirs = linear_sum_assignment(-cosine)
    again[f"seed {seed}"] = cosine[mine, theirs]
again = pd.DataFrame(again).loc[table.index].set_axis(table["name"])
again = again.iloc[np.argsort(-again.min(axis=1), kind="stable")]

figure, axis = plt.subplots(figsize=(6.4, 5.2), layout="constrained")
picture = axis.imshow(again, cmap="Blues", vmin=0, vmax=1, aspect="auto")
axis.set_xticks(range(again.shape[1]), again.columns)
axis.set_yticks(range(len(again)), again.index, fontsize=8)
for (i, j), value in np.ndenumerate(again.values):
    axis.text(
        j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color="white" if value > 0.6 else "black"
    )
axis.set_title("cosine with the matching topic of another start", fontsize=10)
plt.show()
found_again = int((again.min(axis=1) > 0.9).sum())
print(f"{found_again} of {len(again)} topics come again (cosine above 0.9) from all three other seeds")

# %% [markdown]
# ## How many?
#
# Three uses, three answers. Fits with few and with many topics, up to one a label:
#
# * **reading**: coherence of the topics, weighted by what each explains. Topics with fewer than 2 labels in
#   use have nothing to cohere; the share of positives that they explain is shown beside;
# * **prediction** of a test emoji's labels from its features;
# * **completion**: half of the labels of a test emoji are known, the others are asked for.
#   `labelzoo.complete` infers the row's embedding from them, without fitting anew.


# %%
asked = np.random.default_rng(0).random((test.num_rows, test.num_labels)) < 0.5
truth = test.Y.toarray().astype(float)
half = LabelData.from_arrays(
    test.X,
    np.where(asked, np.nan, truth),
    label_names=test.label_names,
    feature_names=test.feature_names,
    example_names=test.example_names,
)


def row_scores(probs):
    """Return nats of each row, over the labels that are asked for."""
    return np.where(asked, xlogy(truth, probs) + xlog1py(1 - truth, -probs), 0.0).sum(axis=1)


COUNTS = [10, 20, 40, train.num_labels]
before, after, rows = {}, {}, {}
for count in COUNTS:
    tree = fits.setdefault(count, None) or labelzoo.fit(MODEL, train, "vb_em", num_topics=count, seed=0)
    fits[count] = tree
    probs = labelzoo.mean_prob(tree, test)
    before[count], after[count] = row_scores(probs), row_scores(labelzoo.complete(tree, half)["prob"].values)
    found = topic_table(tree, 6)
    gain = after[count] - before[count]
    several = found[found["effective_labels"] >= 2]
    rows[count] = {
        "coherence": np.average(several["coherence"], weights=several["weight"]),
        "share of one-label topics": 1 - several["weight"].sum(),
        "AUC within a row": metrics.per_example_auc(test.Y, probs).value,
        "features only": before[count].mean(),
        "half the labels known": after[count].mean(),
        "gain": gain.mean(),
        "its error": gain.std(ddof=1) / np.sqrt(len(gain)),
    }
chosen = pd.DataFrame(rows).T.rename_axis("topics")
chosen.round(3)

# %%
figure, axes = plt.subplots(1, 2, figsize=(9.4, 3.7), layout="constrained")
axes[0].plot(COUNTS, chosen["coherence"], "o-", color=GREEN, label="coherence")
axes[0].plot(
    COUNTS, chosen["share of one-label topics"], "s--", color=GREY, label="share of one-label topics"
)
axes[0].set(ylim=(0, None), title="to read")
axes[0].legend(frameon=False, loc="upper left", fontsize=9)
axes[1].plot(COUNTS, chosen["features only"], "o-", color=BLUE, label="from features only")
axes[1].plot(COUNTS, chosen["half the labels known"], "s-", color=RED, label="and half the labels known")
axes[1].set(ylabel="log score of the other half, nats a row", title="to predict, and to complete")
axes[1].legend(frameon=False, loc="lower right")
for axis in axes:
    axis.set(xscale="log", xlabel="topics")
    axis.set_xticks(COUNTS, [*map(str, COUNTS[:-1]), f"{COUNTS[-1]}\n(one a label)"], fontsize=9)
    axis.minorticks_off()
    axis.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
predicting = int(chosen["features only"].idxmax())
completing, most = int(chosen["gain"].idxmax()), COUNTS[-1]
single = chosen["share of one-label topics"]
print(
    f"At K = 20 topics of one label explain {single[20]:.0%} of the positives, at K = L {single[most]:.0%}.\n"
    f"From features alone K = {predicting} predicts best ({chosen['features only'].max():.2f} nats a row).\n"
    f"Known labels add most at K = {completing}: {chosen['gain'][completing]:+.3f} nats a row "
    f"(error {chosen['its error'][completing]:.3f}); at K = L they add {chosen['gain'][most]:+.3f}."
)

# %% [markdown]
# **Prediction wants K = L.** A topic for every label is close to one logistic regression a label, and no
# label says much about another: there is little to complete with, and nothing to read that the labels' names
# do not say. **Completion and reading want K well below L**, where a topic has to hold several labels. One
# test set ranks these fits here; to choose K for a report, use rows that the report does not score, as
# `benchmarks/conditioning.py` does.
#
# ## Completing one row
#
# Two test emoji, with 20 topics: the one whose hidden labels gain most by the known ones, and the one that
# loses most. Both ends are shown because either alone would mislead.

# %%
given = labelzoo.complete(fits[20], half)["prob"].values
alone = labelzoo.mean_prob(fits[20], test)
gain = after[20] - before[20]
for n in (int(gain.argmax()), int(gain.argmin())):
    names = np.array(test.label_names)
    known = ", ".join(names[(truth[n] > 0) & ~asked[n]]) or "no positive"
    print(f"{test.example_names[n]}   known: {known}   ({gain[n]:+.2f} nats)")
    best = [j for j in np.argsort(-given[n]) if asked[n, j]][:5]
    missed = [j for j in np.flatnonzero((truth[n] > 0) & asked[n]) if j not in best]
    for j in [*best, *missed]:
        mark = "right" if truth[n, j] else ""
        print(f"    {names[j]:<16} {alone[n, j]:.2f} -> {given[n, j]:.2f}  {mark}")

# %% [markdown]
# ## What a sampler adds
#
# EM gives one set of topics. A sampler gives many, whose order may change from draw to draw and from chain to
# chain, so that averaging topic 0 over draws would average different things. A table is made from one draw,
# and `stability` says how well the other draws of its chain agree once matched to it: a small subset, two
# chains.

# %%
from labelzoo.inference.compare.subset import small_subset

small = small_subset(load("emoji"), rows=150, labels=15, features=8, seed=0)
sampled = labelzoo.fit(
    MODEL,
    small,
    "gibbs",
    num_topics=4,
    topic_concentration=0.3,
    num_chains=2,
    num_warmup=300,
    num_samples=300,
    seed=0,
)
drawn = topic_table(sampled, 5)
print(f"chain {drawn.attrs['chain']}, draw {drawn.attrs['draw']}: {drawn.attrs['why']}")
pd.DataFrame(
    {
        "share": drawn["weight"].map("{:.1%}".format),
        "probable": [listed(pairs, 2) for pairs in drawn["probable"]],
        "stability": drawn["stability"].round(2),
    }
)

# %% [markdown]
# Where stability is low the draws do not agree on what the topic is, and it should not be read. What does not
# depend on names and order is the probability of a label: that is what `labelzoo compare` judges samplers by.
#
# On the command line:
#
#     labelzoo fit bernoulli_poisson_topics --data emoji --engine vb_em --set num_topics=20 --out f.nc
#     labelzoo topics f.nc --labels 6 --out topics.png
#     labelzoo complete f.nc --data partly_labelled.npz --out p.npz --top 5

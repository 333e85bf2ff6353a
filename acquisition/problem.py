"""What an acquisition function may read: the pool, the labelled rows, the targets, posterior draws."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from typing import Any, NamedTuple

import numpy as np

from labelzoo.acquisition.problem_checks import check_problem
from labelzoo.acquisition.selectors import check_batch, per_cost, top

Array = Any


@dataclass(frozen=True, eq=False)
class Problem:
    """One question "what should be labelled next?", with everything that is known.

    Any field but the seed may be an array or a function without arguments that makes it; it is made when an
    acquisition function first asks for it, so that ``random`` does not pay for posterior draws.

    Attributes
    ----------
    X_pool : (pool, feature)
        Features of the candidate rows, dense or csr, as the kernel is to see them.
    X_labelled : (labelled, feature)
        Features of the rows whose labels are known.
    Y_labelled : float (labelled, labels)
        0, 1, and NaN where a label was never asked.
    X_targets : (target, feature)
        Rows at which predictions will be made. Without it the targets are the pool rows themselves, each
        candidate's own row left out.
    weights : (target,)
        How much each target matters, at least 0; default 1.
    probs : (sample, pool, labels)
        P(label = 1) draw by draw; the draws are shared by all rows (one index, one parameter draw).
    target_probs : (sample, target, labels)
        The same draws at the targets.
    mean_probs : (pool, labels)
        Posterior mean of P(label = 1); the mean of ``probs`` where that is given.
    labelled_probs : (labelled, labels)
        Probabilities of the labelled rows that did not see their labels (out of fold).
    kernel : Kernel
        Kernel and noise ratio of `labelzoo.acquisition.kernels`.
    asked : bool (pool, labels)
        Which labels of the pool rows are known already (queries of single labels).
    own_score : float (pool,) or (pool, labels)
        A score that the model itself gives.
    label_law : LabelLaw
        Gaussian law of each pool row's labels given the labelled rows, `labelzoo.acquisition.label_law`.
    mixture_law : MixtureLaw
        Mixture law of each pool row's labels, `labelzoo.acquisition.mixture_law`.
    target_law : TargetLaw
        Law of each pool row's compressed targets, `labelzoo.acquisition.target_law`.
    class_similarity : ClassSimilarity
        Similarities of each pool row to the classes, `labelzoo.acquisition.class_similarity`.
    costs : (pool,) or (labels,) or (pool, labels)
        What it costs to ask a row (row queries) or a label; scores are then taken per unit of cost, where the
        function chooses by its score alone.
    seed : int
        Ties and random choices; the same seed, the same answer.
    """

    X_pool: Any = None
    X_labelled: Any = None
    Y_labelled: Any = None
    X_targets: Any = None
    weights: Any = None
    probs: Any = None
    target_probs: Any = None
    mean_probs: Any = None
    labelled_probs: Any = None
    kernel: Any = None
    asked: Any = None
    own_score: Any = None
    label_law: Any = None
    mixture_law: Any = None
    target_law: Any = None
    class_similarity: Any = None
    costs: Any = None
    seed: Any = 0
    _made: dict[str, Any] = field(default_factory=dict, repr=False)

    def has(self, name: str) -> bool:
        """Say whether `name` is known."""
        return getattr(self, name) is not None

    def get(self, name: str) -> Any:
        """Return a field, made once where it is a function; None where it is not known.

        ``mean_probs`` that are not given are the mean of ``probs``.
        """
        value = getattr(self, name)
        if name == "mean_probs" and value is None and self.probs is not None:
            value = self._mean_of_draws
        if not callable(value):
            return value
        if name not in self._made:
            self._made[name] = value()
        return self._made[name]

    def check(self) -> None:
        """Refuse fields that do not fit together; what is not made yet is not looked at."""
        if "checked" not in self._made:
            names = [one.name for one in dataclass_fields(self) if one.name != "_made"]
            known = {name: self._made.get(name, getattr(self, name)) for name in names}
            check_problem({name: None if callable(v) else v for name, v in known.items()}, self.seed)
            self._made["checked"] = True

    def pool_size(self) -> int | None:
        """Return the number of candidate rows, None where nothing says it."""
        for name in ("X_pool", "asked", "mean_probs"):
            if self.has(name):
                return int(self.get(name).shape[0])
        if self.has("probs"):
            return int(self.get("probs").shape[1])
        for name in LAWS:
            if self.has(name):
                return int(self.get(name).shape[0])
        return None

    def _mean_of_draws(self) -> Array:
        from labelzoo.acquisition.information import mean_prob

        return mean_prob(self.get("probs"))

    def need(self, name: str, by: str) -> Any:
        """Return a field, or raise ValueError saying which acquisition function needs it and what it is."""
        value = self.get(name)
        if value is None:
            raise ValueError(f"acquisition {by!r} needs {name}: {NEEDS[name]}")
        return value


NEEDS: Mapping[str, str] = {
    "X_pool": "features of the candidate rows",
    "X_labelled": "features of the rows labelled so far",
    "Y_labelled": "labels of the rows labelled so far",
    "X_targets": "features of the rows where predictions will be made (targets=)",
    "weights": "weights of the targets",
    "probs": "posterior draws of P(label = 1) at the pool (predictions/label_prob)",
    "target_probs": "the same posterior draws at the targets",
    "mean_probs": "posterior mean of P(label = 1) at the pool",
    "labelled_probs": "out-of-fold probabilities of the labelled rows",
    "kernel": "a kernel with its noise ratio",
    "asked": "which labels of the pool rows are known",
    "own_score": "a score from the model itself",
    "label_law": "the Gaussian law of each pool row's labels (a LabelLaw; models with a label_law have one)",
    "mixture_law": "the mixture law of each pool row's labels (a MixtureLaw; models with a mixture_law have "
    "one)",
    "target_law": "the law of each pool row's compressed targets (a TargetLaw; models with a target_law have "
    "one)",
    "class_similarity": "the similarities of each pool row to the classes (a ClassSimilarity; models with a "
    "class_similarity have one)",
    "costs": "costs of rows or labels",
}
"""What each field of a `Problem` is, for messages."""


LAWS: Mapping[str, tuple[str, str]] = {
    "label_law": ("Gaussian law of a row's labels", "sparse_bayes"),
    "mixture_law": ("mixture law of a row's labels", "gp_bernoulli_mixture"),
    "target_law": ("law of compressed targets", "compressed_gp"),
    "class_similarity": ("similarities to the classes", "kernel_neighbors"),
}
"""Fields of a `Problem` that only some models know: what each is, and a model that has it."""


class Choice(NamedTuple):
    """What to label next.

    Attributes
    ----------
    rows : int (batch,)
        Positions in the pool, in order of choice; distinct for row queries.
    gains : float (batch,)
        Score of each when it was chosen, in the units of the acquisition function.
    labels : int (batch,) or None
        Positions of the labels for (row, label) queries; the pairs are distinct.
    report : dict
        Numbers worth telling: Monte Carlo error, saturation, rows compared.
    """

    rows: Array
    gains: Array
    labels: Array | None = None
    report: Mapping[str, Any] = {}  # noqa: RUF012


@dataclass(frozen=True)
class Acquisition:
    """An entry of the catalogue.

    Parameters
    ----------
    name : str
    query : str
        ``row`` or ``cell`` (a pair of row and label).
    units : str
        Of the score, ``nats`` for instance.
    needs : tuple of str
        Fields of `Problem` without which it cannot work.
    bias : str
        Systematic error of the estimate, and its Monte Carlo error where it has one.
    cost : str
        Flops and bytes in rows, labels, samples, features.
    helps : str
        One honest line on when it helps.
    source : str
        Paper and equation.
    score : callable
        ``score(problem) -> (pool,)`` or ``(pool, labels)``; larger is asked first.
    choose : callable or None
        ``choose(problem, batch) -> Choice`` where a batch is chosen row by row, each given the ones before;
        None: the `batch` highest scores.
    """

    name: str
    query: str
    units: str
    needs: tuple[str, ...]
    bias: str
    cost: str
    helps: str
    source: str
    score: Callable[[Problem], Array]
    choose: Callable[[Problem, int], Choice] | None = None

    def __post_init__(self) -> None:
        """Refuse a kind of query or a field that does not exist."""
        if self.query not in ("row", "cell"):
            raise ValueError(f"acquisition {self.name!r}: query must be 'row' or 'cell', got {self.query!r}")
        unknown = [name for name in self.needs if name not in NEEDS]
        if unknown:
            raise ValueError(
                f"acquisition {self.name!r}: needs names no field of Problem: "
                f"{', '.join(map(str, unknown))}; fields: {', '.join(NEEDS)}"
            )

    def __call__(self, problem: Problem, batch: int) -> Choice:
        """Return the next `batch` queries of `problem`.

        Raises
        ------
        ValueError
            If the problem lacks a field that is needed, or the function answers with something else than
            scores of the pool or a batch from it.
        PoolExhausted
            If there is nothing left to ask.
        """
        problem.check()
        for name in self.needs:
            problem.need(name, self.name)
        if self.choose is not None:
            if problem.has("costs"):
                raise ValueError(f"acquisition {self.name!r} chooses a batch as a whole and reads no costs")
            return self._checked(self.choose(problem, batch), problem)
        return best(self.scores(problem), batch, problem)

    def scores(self, problem: Problem) -> Array:
        """Return `score` of a problem, checked: (pool,), or (pool, labels) for queries of single labels."""
        values, size = np.asarray(self.score(problem), float), problem.pool_size()
        wanted, shape = (1, "(pool,)") if self.query == "row" else (2, "(pool, labels)")
        if values.ndim != wanted or (size is not None and values.shape[0] != size):
            raise ValueError(
                f"acquisition {self.name!r} must return scores {shape} of {'the' if size is None else size} "
                f"rows of the pool, got shape {values.shape}"
            )
        bad = np.argwhere(np.isnan(values))
        if len(bad):
            place = ", ".join(f"{what} {at}" for what, at in zip(("row", "label"), bad[0], strict=False))
            raise ValueError(f"acquisition {self.name!r} gives NaN for {place} of the pool")
        return values

    def _checked(self, choice: Choice, problem: Problem) -> Choice:
        rows, size = np.asarray(choice.rows), problem.pool_size()
        labels = None if choice.labels is None else np.asarray(choice.labels)
        pairs = rows if labels is None else np.stack([rows, labels], axis=1)
        if len(np.unique(pairs, axis=0)) < len(pairs):
            raise ValueError(f"acquisition {self.name!r} chose the same query twice")
        if size is not None and len(rows) and (rows.min() < 0 or rows.max() >= size):
            raise ValueError(f"acquisition {self.name!r} chose a row outside the pool of {size} rows")
        return choice


def best(scores: Array, batch: int, problem: Problem) -> Choice:
    """Return the `batch` highest scores, of rows (pool,) or of cells (pool, labels) not asked yet."""
    values = np.asarray(scores, float)
    if problem.has("costs"):
        values = per_cost(values, problem.get("costs"))
    if values.ndim == 1:
        rows = top(values, batch, seed=problem.seed)
        return Choice(rows, values[rows])
    asked = problem.get("asked")
    open_cells = np.ones(values.shape, bool) if asked is None else ~np.asarray(asked, bool)
    at, label = np.nonzero(open_cells)
    chosen = top(values[open_cells], check_batch(batch, at.size), seed=problem.seed)
    return Choice(at[chosen], values[at[chosen], label[chosen]], label[chosen])

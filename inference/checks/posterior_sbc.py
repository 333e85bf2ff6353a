"""Calibration around a user's own data, where the posterior lives and not where the prior is.

Draw theta_i from the posterior given the data, labels y_i of the same rows given theta_i, and fit the data
and y_i together: the rank of theta_i in that posterior is uniform if the fits are right (Sailynoja, Schmitt,
Burkner and Vehtari, "Posterior SBC: simulation-based calibration checking conditional on data", 2025). An
engine that fails only far from the data passes; one that fails here is wrong where it is used.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from labelzoo.data import LabelData
from labelzoo.inference.checks.chains import NotApplicableError, chain, kernel_of, run_all
from labelzoo.inference.checks.geweke import normal_limit, not_applicable
from labelzoo.inference.checks.joint import NoJointPriorError, Replicates
from labelzoo.inference.checks.programs import State, split_inputs
from labelzoo.inference.checks.ranks import Ranks
from labelzoo.inference.checks.report import CheckResult
from labelzoo.inference.checks.sbc import (
    DRAWS,
    THINNING,
    WARMUP,
    LostDrawsError,
    calibration,
    refuse_lost,
)
from labelzoo.inference.engine import Engine
from labelzoo.models.spec import ModelSpec

Array = Any
Say = Callable[[str], None]

TABLES = 25
"""Tables of labels drawn for each posterior draw, of which at most one has the shape that is kept."""
MOST_PREPARED = 20
"""Tables prepared for each one wanted, while the shape is sought."""
CELLS = 30
"""Probabilities of labels that are ranked."""


def posterior_sbc(
    spec: ModelSpec,
    data: LabelData,
    engine: Engine,
    *,
    seed: int = 0,
    count: int = 100,
    families: int = 1,
    say: Say = lambda line: None,
    settings: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    warmup: int = WARMUP,
    thinning: int = THINNING,
) -> tuple[CheckResult, list[Ranks]]:
    """Check an ``mcmc`` engine by ranks around `data`.

    Ranked are probabilities of labels at rows of the data and the log score of the drawn labels, which do not
    depend on how latent components are numbered.

    Parameters
    ----------
    spec : ModelSpec
        With ``draw_labels``, or labels independent given a draw.
    data : LabelData
        A few hundred rows at most: `count` fits of twice the rows are made side by side.
    engine : Engine
        With a `kernel`.
    seed, count, families : int
        `count` is the number of pairs (theta_i, y_i).
    settings : mapping, optional
        Settings of the program.
    options : mapping, optional
        Options of the engine for the fit of `data` itself.
    warmup, thinning : int
        Sweeps of the refits before the first and between kept draws.

    Returns
    -------
    CheckResult, list of Ranks
        One attempt: its seed and rate are stated, and no second attempt is made.
    """
    try:
        kernel = kernel_of(spec, engine)
        with jax.enable_x64(True):
            program = spec.resolve({**engine.overrides, **(settings or {})})
            joint, measure_of = _pairs(spec, data, engine, program, options or {}, seed, count, say)
    except (NotApplicableError, NoJointPriorError) as error:
        return not_applicable(engine, "sbc", error), []
    say(f"{spec.name}: {engine.name}, {joint.size} refits of twice the rows")

    def refit(key: Array, sites: State, inputs: Mapping[str, Any]) -> tuple[State, State]:
        labels = sites["labels"]
        of = {"spec": spec, "kernel": kernel, "warmup": warmup, "draws": DRAWS, "thinning": thinning}
        return chain(key, sites, inputs, measure=lambda draw, _: measure_of(draw, labels), **of)

    truth, draws = run_all(refit, joint, seed + 20_000, fast_compile=False)
    try:
        refuse_lost(truth, draws)
    except LostDrawsError as error:
        return CheckResult(engine.name, "sbc", "", False, np.inf, 0.0, str(error)), []
    found = calibration(truth, draws, seed, exact=False)
    if not found.ranks:
        return not_applicable(engine, "sbc", "the refits mixed too slowly to be ranked"), []
    worst, limit = found.worst, normal_limit(len(found.ranks), families)
    slow = f"; mixed too slowly to rank: {len(found.unranked)}" if found.unranked else ""
    detail = (
        f"posterior calibration around the data: ranks on {joint.size} replicated tables, least uniform of "
        f"{len(found.ranks)} quantities {worst.name}, seed {seed}{slow}"
    )
    return CheckResult(engine.name, "sbc", worst.name, worst.z <= limit, worst.z, limit, detail), found.ranks


def labels_given_draw(spec: ModelSpec) -> Callable[..., Array]:
    """Return ``draw(draw, X, constants, key) -> labels (row, labels)``.

    Raises
    ------
    NoJointPriorError
        If labels depend on each other given a draw and the card does not say how to draw them.
    """
    if spec.draw_labels is not None:
        own = spec.draw_labels
        return lambda draw, X, constants, key: own(draw, X, constants, key)[0]
    if spec.log_score is not None:
        raise NoJointPriorError(
            f"{spec.name}: labels depend on each other given a draw; it has no draw_labels"
        )

    def independent(draw: State, X: Array, constants: Mapping[str, Any], key: Array) -> Array:
        return jax.random.bernoulli(key, spec.predict(draw, X, constants)).astype(jnp.int8)

    return independent


def _pairs(
    spec: ModelSpec,
    data: LabelData,
    engine: Engine,
    settings: dict[str, Any],
    options: Mapping[str, Any],
    seed: int,
    count: int,
    say: Say,
) -> tuple[Replicates, Callable[[State, Array], State]]:
    """Return posterior draws with replicated labels, stacked, and what is measured of a draw."""
    draw_labels = labels_given_draw(spec)
    X = data.X if isinstance(data.X, np.ndarray) else data.X.toarray()
    inputs = spec.prepare(data, settings)
    constants = {**settings, **spec.constants(inputs)}
    say(f"{spec.name}: {engine.name}, fitting the data")
    key = jax.random.key(seed)
    chosen = {**engine.options, **options}
    result = engine.run(spec, inputs, rng_key=key, progress=False, **chosen)
    local = {name for name, dims in spec.dims.items() if "obs" in dims}
    sites = {n: v.reshape(-1, *v.shape[2:]) for n, v in result.draws.items() if n not in local}
    keys = jax.random.split(jax.random.fold_in(key, 1), (len(next(iter(sites.values()))), TABLES))

    @jax.jit
    def tables(sites: State, keys: Array) -> Array:
        def one(draw: State, keys: Array) -> Array:
            return jax.vmap(lambda k: draw_labels(draw, jnp.asarray(X), constants, k))(keys)

        return jax.lax.map(lambda both: one(*both), (sites, keys))

    rng = np.random.default_rng([seed, 5])
    joint = _one_shape(spec, data, X, settings, sites, np.asarray(tables(sites, keys)), count, rng)
    cells = np.unique(np.linspace(0, data.num_rows * data.num_labels - 1, CELLS).astype(int))

    def measure(draw: State, labels: Array) -> State:
        probs = jnp.clip(spec.predict(draw, jnp.asarray(X), constants), 1e-12, 1 - 1e-12)
        score = jnp.where(labels > 0, jnp.log(probs), jnp.log1p(-probs)).sum()
        return {"probability": probs.reshape(-1)[cells], "log_score": score[None]}

    return joint, measure


def _one_shape(
    spec: ModelSpec,
    data: LabelData,
    X: np.ndarray,
    settings: dict[str, Any],
    sites: State,
    tables: np.ndarray,
    count: int,
    rng: np.random.Generator,
) -> Replicates:
    """Return pairs whose data have the most frequent shape, no posterior draw twice.

    Tables of the most frequent number of positives are prepared in random order.
    """
    observed = np.where(data.observed_mask(), data.Y.toarray().astype(float), np.nan)
    positives = tables.sum(axis=(2, 3))
    frequent = np.bincount(positives.ravel().astype(int)).argmax()
    shapes = [np.shape(leaf) for leaf in split_inputs(spec.prepare(data, settings))[0]]
    # Where no array is as long as there are positives, shapes do not depend on them.
    fixed = not any(int(data.Y.nnz) in shape for shape in shapes)
    candidates = np.argwhere(np.ones_like(positives, bool) if fixed else positives == frequent)
    found: dict[Any, dict[int, Any]] = {}
    for draw, table in rng.permutation(candidates)[: MOST_PREPARED * count]:
        Y = np.concatenate([observed, tables[draw, table]])
        both = LabelData.from_arrays(np.concatenate([X, X]), Y)
        arrays, static = split_inputs(spec.prepare(both, settings))
        signature = (static, tuple(np.shape(leaf) for leaf in arrays))
        found.setdefault(signature, {}).setdefault(int(draw), (arrays, tables[draw, table]))
        if len(found[signature]) == count:
            break
    (static, _), _ = Counter({key: len(pairs) for key, pairs in found.items()}).most_common(1)[0]
    kept = max(found.values(), key=len)
    stacked = {name: value[list(kept)] for name, value in sites.items()}
    stacked["labels"] = np.stack([labels for _, labels in kept.values()])
    columns = zip(*(arrays for arrays, _ in kept.values()), strict=True)
    arrays = [np.stack([np.asarray(leaf) for leaf in leaves]) for leaves in columns]
    return Replicates(arrays, static, stacked, 1.0)

r"""What the parameters of a wrong claim should have been, read off the joint.

In the families below the log density is linear in a few statistics of the value,
:math:`\log p(x) = c + \sum_j \eta_j T_j(x)`, and so is the log joint as a function of one entry of the block
if the claim's family is the right one. The joint at a few values of that entry, all else fixed, gives the
right :math:`\eta` by least squares, and the parameters with it; where the fit leaves more than rounding, the
true conditional is of another family. This does not say what the slip was, but where it is and how large.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist
from scipy.special import gammaln

from labelzoo.inference.checks.coordinates import Described
from labelzoo.inference.checks.identity import Bench, joint_terms
from labelzoo.inference.checks.parameters import innermost
from labelzoo.inference.checks.programs import Program, State, claim_of, join_inputs, split_inputs
from labelzoo.inference.distributions import GaussianNatural

Array = Any

FITTED = 1e-7
"""Largest residual of the fit, relative to the size of the log joint, where the family is right."""
DIFFERS = 1e-5
"""Parameters further apart than this, relatively, differ."""
SPARE = 3
"""Values of an entry beyond those that the parameters need."""
STATES_TRIED = 3


class Family(NamedTuple):
    """An exponential family: statistics (value, statistic) of values (value, *event), a base log density, the
    parameters of coefficients, and the coefficients' number for an event of some size."""

    statistics: Callable[[Array], Array]
    parameters: Callable[[Array, int], dict[str, Array]]
    count: Callable[[int], int]
    base: Callable[[Array], Array] = lambda x: np.zeros(len(x))


def _scalar(*functions: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: np.stack([function(x) for function in functions], axis=1)


def _gaussian_statistics(x: Array) -> Array:
    first, second = np.triu_indices(x.shape[1])
    return np.concatenate([x, x[:, first] * x[:, second]], axis=1)


def _normal_parameters(eta: Array, size: int) -> dict[str, Array]:
    natural = _gaussian_parameters(eta, size)
    covariance = np.linalg.pinv(natural["precision"])
    loc = covariance @ natural["potential"]
    try:
        return {"loc": loc, "scale_tril": np.linalg.cholesky(covariance)}
    except np.linalg.LinAlgError:
        return {"loc": loc}


def _gaussian_parameters(eta: Array, size: int) -> dict[str, Array]:
    precision = np.zeros((size, size))
    precision[np.triu_indices(size)] = -eta[size:]
    return {"potential": eta[:size], "precision": precision + precision.T}


FAMILIES: dict[type, Family] = {
    dist.Gamma: Family(
        _scalar(np.log, np.negative), lambda e, n: {"concentration": e[0] + 1, "rate": e[1]}, lambda n: 2
    ),
    dist.Beta: Family(
        _scalar(np.log, lambda x: np.log1p(-x)),
        lambda e, n: {"concentration1": e[0] + 1, "concentration0": e[1] + 1},
        lambda n: 2,
    ),
    dist.Normal: Family(
        _scalar(lambda x: x, np.square),
        lambda e, n: {"loc": -0.5 * e[0] / e[1], "scale": np.sqrt(-0.5 / e[1])},
        lambda n: 2,
    ),
    dist.Exponential: Family(_scalar(np.negative), lambda e, n: {"rate": e[0]}, lambda n: 1),
    dist.InverseGamma: Family(
        _scalar(np.log, lambda x: -1 / x),
        lambda e, n: {"concentration": -e[0] - 1, "rate": e[1]},
        lambda n: 2,
    ),
    dist.Poisson: Family(
        _scalar(lambda x: x),
        lambda e, n: {"rate": np.exp(e[0])},
        lambda n: 1,
        base=lambda x: -gammaln(x + 1.0),
    ),
    dist.Dirichlet: Family(np.log, lambda e, n: {"concentration": e + 1}, lambda n: n),
    GaussianNatural: Family(_gaussian_statistics, _gaussian_parameters, lambda n: n + n * (n + 1) // 2),
    dist.MultivariateNormal: Family(_gaussian_statistics, _normal_parameters, lambda n: n + n * (n + 1) // 2),
}
"""By the class of the claimed distribution (and its subclasses)."""


def family_of(kind: type) -> Family | None:
    """Return the family of a distribution's class, None for those not listed."""
    return next((FAMILIES[base] for base in kind.__mro__ if base in FAMILIES), None)


@Program
def claimed_parameters(
    arrays: list[Array], state: State, *, static: Any, given: Any, sites: tuple[str, ...]
) -> dict[str, dict[str, Array]]:
    """Return {site: {parameter: array}} of a claim at one state."""
    claim = claim_of(given, state, join_inputs(arrays, static), sites)
    return {
        site: {
            name: getattr(innermost(d), name)
            for name in innermost(d).arg_constraints
            if name in vars(innermost(d))
        }
        for site, d in claim.items()
    }


class Difference(NamedTuple):
    """One parameter as claimed and as it should be, (batch entry, *its own shape)."""

    site: str
    name: str
    claimed: Array
    right: Array

    @property
    def wrong(self) -> Array:
        """Which entries differ, flags of the shape of `right`."""
        size = np.maximum(np.abs(self.claimed), np.abs(self.right))
        return np.abs(self.claimed - self.right) > DIFFERS * np.maximum(size, 1e-12 * size.max(initial=0.0))


def recovered_text(given: Any, sites: tuple[str, ...], bench: Bench, described: Described) -> str:
    """Say which parameters differ from what the joint asks for, "" where the families are not listed."""
    for index in np.argsort(np.abs(np.where(np.isfinite(bench.log_p), bench.log_p, np.inf)).max(axis=1)):
        texts = [_site_text(site, given, sites, bench, described, int(index)) for site in described.laws]
        texts = [text for text in texts if text]
        if texts:
            return "; ".join(texts)
    return ""


def _site_text(
    site: str, given: Any, sites: tuple[str, ...], bench: Bench, described: Described, index: int
) -> str:
    law = described.laws[site]
    family = family_of(law.kind)
    if family is None:
        return ""
    right, residual = right_parameters(site, family, bench, index, len(law.event_shape))
    if right is None:
        return ""
    if residual > FITTED:
        return f"the joint is no {law.kind.__name__} in {site} (residual {residual:.1e})"
    arrays, static = split_inputs(bench.inputs)
    state = {name: value[index] for name, value in bench.states.items()}
    claimed = claimed_parameters(arrays, state, static=static, given=given, sites=sites)[site]
    return "; ".join(_parameter_text(d, index) for d in differences(site, claimed, right) if d.wrong.any())


def differences(site: str, claimed: Mapping[str, Array], right: Mapping[str, Array]) -> list[Difference]:
    """Return claimed and right parameters side by side, claimed ones broadcast."""
    out = []
    for name, value in right.items():
        if name in claimed:
            own = np.asarray(claimed[name])
            try:
                out.append(Difference(site, name, np.broadcast_to(own, value.shape), value))
            except ValueError:  # the wrapped batch of the claim has another shape than the site
                out.append(
                    Difference(
                        site, name, np.broadcast_to(own.reshape(-1, *value.shape[1:]), value.shape), value
                    )
                )
    return out


def _parameter_text(difference: Difference, index: int) -> str:
    wrong, name = difference.wrong, f"{difference.name} of {difference.site}"
    claimed, right = difference.claimed[wrong], difference.right[wrong]
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    share = "everywhere" if wrong.all() else f"at {int(wrong.sum())} of {wrong.size} entries"
    said = f"{name} is wrong {share}: at {list(where)} of state {index} {claimed[0]:.4g} for {right[0]:.4g}"
    ratio, gap = claimed / np.where(right == 0, np.nan, right), claimed - right
    if wrong.sum() > 1 and np.ptp(gap) <= DIFFERS * np.abs(gap).max():
        return f"{said}, {gap[0]:+.4g} at each"
    if wrong.sum() > 1 and np.isfinite(ratio).all() and np.ptp(ratio) <= DIFFERS * np.abs(ratio).max():
        return f"{said}, {ratio[0]:.4g} times at each"
    return said


def right_parameters(
    site: str, family: Family, bench: Bench, index: int, event_dim: int
) -> tuple[dict[str, Array] | None, float]:
    """Return the parameters that the joint asks for at one state, (*batch, *own), and the fit's residual.

    `event_dim` axes of the site belong to wrappers and events; entries are those of the innermost batch.
    """
    value = bench.states[site][index]
    own = _event_size(family, value)
    batch = value.shape if own is None else value.shape[:-1]
    size = 1 if own is None else own
    need = family.count(size) + SPARE
    pool = bench.blocks[site].reshape(-1, *value.shape)
    pool = pool[np.linspace(0, len(pool) - 1, min(len(pool), 4 * need)).astype(int)]
    found, worst = [], 0.0
    for entry in np.ndindex(*batch):
        at: Any = (slice(None), *entry)
        etas = _fit_entry(site, family, bench, index, at, pool[at], need)
        if etas is None:
            return None, np.inf
        found.append(family.parameters(etas[0], size))
        worst = max(worst, etas[1])
    stacked = {name: np.stack([one[name] for one in found]) for name in found[0]}
    return {name: array.reshape((*batch, *array.shape[1:])) for name, array in stacked.items()}, worst


def _event_size(family: Family, value: Array) -> int | None:
    """Return the size of an event, None for families of single numbers."""
    return value.shape[-1] if family.count(1) != family.count(2) else None


def _fit_entry(
    site: str, family: Family, bench: Bench, index: int, entry: Any, values: Array, need: int
) -> tuple[Array, float] | None:
    """Return the coefficients of one entry and the residual of the fit; None with too few finite values."""
    table = np.repeat(bench.states[site][index][None], len(values), axis=0)
    table[entry] = values
    log_p = log_joint_along(bench, index, {site: table})
    usable = np.isfinite(log_p)
    if usable.sum() < need:
        return None
    kept, target = values[usable], log_p[usable]
    statistics = family.statistics(np.asarray(kept, float))
    design = np.concatenate([np.ones((len(kept), 1)), statistics], axis=1)
    # The largest log densities lose the digits: nearer values count for more.
    weight = 1.0 / np.maximum(1.0, np.abs(target) + np.abs(statistics).max(axis=1))
    scale = np.maximum(np.abs(design * weight[:, None]).max(axis=0), 1e-300)
    solved = np.linalg.lstsq(
        design * weight[:, None] / scale, (target - family.base(kept)) * weight, rcond=None
    )[0]
    left = np.abs(design @ (solved / scale) + family.base(kept) - target) * weight
    return solved[1:] / scale[1:], float(left.max())


def log_joint_along(bench: Bench, index: int, values: State) -> Array:
    """Return the log joint at one state with the block sites in `values` (value, ...) in place, (value,)."""
    shape = bench.log_p.shape
    count = len(next(iter(values.values())))
    out = []
    for start in range(0, count, int(np.prod(shape))):
        place = np.minimum(start + np.arange(int(np.prod(shape))), count - 1).reshape(shape)
        states = {
            name: np.repeat(value[index][None], shape[0], axis=0) for name, value in bench.states.items()
        }
        terms, valid = joint_terms(
            bench.view, bench.view_inputs, states, {site: value[place] for site, value in values.items()}
        )
        table = np.stack(list(terms.values())).sum(0)
        with np.errstate(invalid="ignore"):
            out.append(np.where(valid, table, -np.inf).ravel()[: count - start])
    return np.concatenate(out)[:count]

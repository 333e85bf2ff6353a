"""Rung 'order': the law of a sweep on tables, against explicit matrices, and on the package's samplers."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from labelzoo.inference.bernoulli_poisson_topics import gibbs, gibbs_counts
from labelzoo.inference.bernoulli_poisson_topics import order as topics_order
from labelzoo.inference.checks import order_table
from labelzoo.inference.checks.marginal import Nodes, whole_numbers
from labelzoo.inference.checks.order import (
    OrderCase,
    Step,
    aged,
    check_order,
    gauss_gamma,
    make_bench,
    moved,
    order_mutants,
    order_rung,
    points,
    total_variation,
    transition_matrix,
)
from labelzoo.inference.checks.order_bench import claim_table
from labelzoo.inference.checks.programs import ClaimError
from labelzoo.inference.label_logistic import order as logistic_order
from labelzoo.inference.update import Update
from labelzoo.models import registry
from labelzoo.models.spec import ModelSpec

SIZES = {"a": 2, "b": 3, "c": 2}
TABLE = np.random.default_rng(5).dirichlet(np.ones(12)).reshape(2, 3, 2)


def _flat(name: str) -> Any:
    return numpyro.sample(name, dist.Categorical(logits=jnp.zeros(SIZES[name])))


def _full(table: Any) -> None:
    a, b, c = (_flat(name) for name in SIZES)
    numpyro.factor("table", jnp.log(table)[a, b, c])


def _without_c(table: Any) -> None:
    a, b = _flat("a"), _flat("b")
    numpyro.factor("table", jnp.log(table.sum(axis=2))[a, b])


def _categorical(table: Any) -> Any:
    return dist.Categorical(logits=jnp.log(table))


B = Update("b_given_a", ("b",), "without_c", lambda s, i: _categorical(i["table"].sum(axis=2)[s["a"]]))
C = Update("c_given_rest", ("c",), "full", lambda s, i: _categorical(i["table"][s["a"], s["b"]]))
A = Update("a_given_rest", ("a",), "full", lambda s, i: _categorical(i["table"][:, s["b"], s["c"]]))
RIGHT = (B, C, A)
SPEC = ModelSpec("toy", {"summed": _full, "full": _full, "without_c": _without_c}, lambda *a: 0)
CASE = OrderCase(
    name="b, c, a",
    engine="toy",
    view="full",
    inputs=lambda: {"table": TABLE},
    nodes=lambda inputs: {name: whole_numbers(0, size - 1) for name, size in SIZES.items()},
    updates=RIGHT,
    threshold=1e-12,
    mutants=(("a before c", moved(RIGHT, C, after=A)), ("a of the old c", aged(RIGHT, A, "c"))),
)


def _matrix(kernels: list[Any]) -> np.ndarray:
    """Multiply kernels k(x, x') on the 12 states by brute force."""
    states = [(a, b, c) for a in range(2) for b in range(3) for c in range(2)]
    product = np.eye(12)
    for kernel in kernels:
        product = product @ np.array([[kernel(x, y) for y in states] for x in states])
    return product


def _draw_b(x: Any, y: Any) -> float:
    ab = TABLE.sum(axis=2)
    return (ab[x[0], y[1]] / ab[x[0]].sum()) * (x[0] == y[0]) * (x[2] == y[2])


def _draw_c(x: Any, y: Any) -> float:
    return (TABLE[x[0], x[1], y[2]] / TABLE[x[0], x[1]].sum()) * (x[:2] == y[:2])


def _draw_a(x: Any, y: Any) -> float:
    return (TABLE[y[0], x[1], x[2]] / TABLE[:, x[1], x[2]].sum()) * (x[1:] == y[1:])


@pytest.mark.parametrize(
    ("order", "kernels"),
    [
        (RIGHT, [_draw_b, _draw_c, _draw_a]),
        ((B, A, C), [_draw_b, _draw_a, _draw_c]),
        ((A, C, B), [_draw_a, _draw_c, _draw_b]),
    ],
)
def test_tables_and_matrices_agree(order: Any, kernels: list[Any]) -> None:
    bench = make_bench(CASE, SPEC)
    P = transition_matrix(bench, order)
    np.testing.assert_allclose(P, _matrix(kernels), atol=1e-15)
    pi = TABLE.ravel()
    tv = 0.5 * np.abs(pi @ P - pi).sum()
    assert total_variation(bench, order) == pytest.approx(tv, abs=1e-15)
    assert (tv < 1e-14) == (order == RIGHT)


def test_a_collapsed_update_alone_moves_the_posterior() -> None:
    bench = make_bench(CASE, SPEC)
    alone = transition_matrix(bench, (B,))
    assert np.abs(TABLE.ravel() @ alone - TABLE.ravel()).sum() > 1e-2
    # Nothing is lost where c is drawn before anything reads it.
    np.testing.assert_allclose(TABLE.ravel() @ alone @ transition_matrix(bench, (C,)), TABLE.ravel())


def test_stale_reads_are_those_of_the_start() -> None:
    bench = make_bench(CASE, SPEC)
    P = transition_matrix(bench, aged(RIGHT, A, "c"))
    states = [(a, b, c) for a in range(2) for b in range(3) for c in range(2)]
    expected = [
        [
            _draw_b(x, (x[0], y[1], x[2]))
            * _draw_c((x[0], y[1], x[2]), (x[0], y[1], y[2]))
            * _draw_a((x[0], y[1], x[2]), (y[0], y[1], x[2]))
            for y in states
        ]
        for x in states
    ]
    np.testing.assert_allclose(P, expected, atol=1e-15)


def test_rung_passes_right_and_kills_wrong() -> None:
    checks, mutants = order_rung(CASE, SPEC, 0)
    assert checks[0].passed
    assert checks[0].kind == "order"
    assert checks[0].statistic < 1e-14
    assert [row.killed_by for row in mutants] == ["order", "order"]
    assert "planted: a before c" in checks[0].detail
    wrong = check_order(replace(CASE, updates=(B, A, C)), SPEC)
    assert wrong.passed is False
    assert "one sweep changes the posterior" in wrong.detail


def test_fault_that_shows_only_in_the_next_sweep_is_seen() -> None:
    # Kept is b alone: one sweep of (B, A, C) from the posterior gives b its law, but carries a wrong a.
    case = replace(CASE, kept=("b",), mutants=(("a before c", (B, A, C)),))
    assert order_mutants(case, SPEC)[0][0].killed_by == "order"


def test_a_harmless_change_survives() -> None:
    case = replace(CASE, mutants=(("another valid order", (C, A, B, C)),))
    row, tv = order_mutants(case, SPEC)[0]
    assert row.killed_by is None
    assert tv < 1e-14


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"view": "fullest"}, "toy has no view 'fullest'; views: summed, full, without_c"),
        ({"kept": ("a", "d")}, r"kept names \['d'\], which the view 'full' lacks"),
        ({"updates": (B, C)}, "b, c, a: no update draws a"),
        ({"nodes": lambda inputs: {"a": whole_numbers(0, 1)}}, "view 'full': no nodes for the sites b, c"),
        ({"inputs": lambda: {"table": 0.0 * TABLE}}, "no finite density on the nodes"),
        ({"view": "without_c", "updates": (B, A)}, "c: read before it is drawn, and not in the view"),
        ({"updates": (B, C, Step(A, ("a",)))}, "a_given_rest does not read a, which a step calls stale"),
        ({"updates": (B, C, Step(A, ("d",)))}, "a_given_rest does not read d, which a step calls stale"),
    ],
)
def test_incomplete_cases(change: Mapping[str, Any], message: str) -> None:
    case = replace(CASE, **change)
    with pytest.raises(ValueError, match=message):
        check_order(case, SPEC)
    checks, mutants = order_rung(case, SPEC)
    assert checks[0].passed is False
    assert "could not be evaluated: ValueError" in checks[0].detail
    assert [row.killed_by for row in mutants] == [None, None]


def test_claims_may_read_their_own_view_only() -> None:
    bench = make_bench(CASE, SPEC)
    nosy = Update("b_given_c", ("b",), "without_c", lambda s, i: _categorical(i["table"][0, :, s["c"]]))
    with pytest.raises(ClaimError, match="reads 'c' which is neither in the view's state nor in the inputs"):
        claim_table(nosy, bench)
    with pytest.raises(ClaimError, match=r"c_given_rest draws \['c'\], which the view 'without_c' lacks"):
        claim_table(replace(C, view="without_c"), bench)


def test_tables_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_table, "MAX_CELLS", 3)
    with pytest.raises(ValueError, match=r"an update of b would fill a table of .*: take fewer nodes"):
        check_order(CASE, SPEC)


def test_gauss_gamma_integrates_gammas() -> None:
    nodes = gauss_gamma(1.5, 2.0, 20)
    assert isinstance(nodes, Nodes)
    for shape, rate in ((1.5, 2.0), (3.5, 2.7), (2.5, 1.2)):
        density = dist.Gamma(shape, rate).log_prob(nodes.values)
        assert np.exp(density + nodes.log_weights).sum() == pytest.approx(1.0, abs=1e-11)


def test_points_stacks_values() -> None:
    nodes = points([0.1, 0.9], [0.5, 0.5])
    assert nodes.values.shape == (2, 2)
    assert not nodes.log_weights.any()


CASES = [("label_logistic", logistic_order.CASES[0])] + [
    ("bernoulli_poisson_topics", case) for case in topics_order.CASES
]


@pytest.mark.parametrize(("model", "case"), CASES, ids=[case.engine for _, case in CASES])
def test_sweeps_of_the_package(model: str, case: OrderCase) -> None:
    checks, mutants = order_rung(case, registry.get(model).spec, 0)
    assert checks[0].passed, checks[0].detail
    assert [row.mutant for row in mutants if row.killed_by is None] == []


@pytest.mark.parametrize(("model", "engine"), sorted({(model, case.engine) for model, case in CASES}))
def test_the_cases_of_an_engine_hold_all_its_conditionals(model: str, engine: str) -> None:
    held = {u.name for m, case in CASES for u in case.updates if (m, case.engine) == (model, engine)}
    assert set(registry.get(model).engines[engine].conditionals) <= held


def test_other_valid_orders_of_first_arrivals_pass() -> None:
    case = topics_order.CASES[0]
    bench = make_bench(case, topics_order.spec)
    arrivals, topics, shape_weights, embedding, precision = case.updates
    for order in (
        (arrivals, topics, shape_weights, precision, embedding),
        (precision, arrivals, topics, arrivals, shape_weights, embedding),
        (topics, shape_weights, embedding, precision, arrivals),
    ):
        assert total_variation(bench, order) < case.threshold


class _Spy:
    """Stands for the blocks of a sweep: a drawn site becomes 1, and what each block saw is written down."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, float]]] = []

    def look(self, name: str, state: Mapping[str, Any], read: tuple[str, ...], *more: Any) -> None:
        values = {site: float(state[site].sum()) for site in read}
        self.seen.append((name, values | {f"sum {i}": float(v.sum()) for i, v in enumerate(more)}))

    def block(self, name: str, drawn: tuple[str, ...], read: tuple[str, ...], sums: int = 0) -> Any:
        """Return a block whose arguments are the key, `sums` sums over the state, perhaps more, the state."""

        def fake(key: Any, *arguments: Any) -> dict[str, Any]:
            state = arguments[-2]
            self.look(name, state, read, *arguments[:sums])
            return {**state, **dict.fromkeys(drawn, jnp.ones(1))}

        return fake

    def claim(self, name: str, *read: str) -> Any:
        def given(state: Mapping[str, Any], inputs: Any) -> Any:
            self.look(name, state, read)
            one = jnp.ones(1)
            return SimpleNamespace(sample=lambda key: one, concentration=one, rate=one)

        return given


STORED = {site: jnp.zeros(1) for site in ("topics", "embedding", "shape", "weights", "precision")}


@pytest.mark.parametrize("row_scale", [False, True])
def test_first_arrival_sweep_runs_in_the_order_that_is_checked(
    monkeypatch: pytest.MonkeyPatch, row_scale: bool
) -> None:
    spy = _Spy()
    t, z, drawn = "arrival_time", "arrival_topic", ("shape", "weights")
    fakes = {
        "draw_first_arrivals": spy.block("t, z", (t, z), ("topics", "embedding")),
        "row_scale_step": spy.block("c", ("embedding", t), (t, z, "embedding")),
        "topics_step": spy.block("V", ("topics", "topics_accepted"), (t, z, "embedding")),
        "counts_by_row": lambda state, inputs: state[z],
        "row_exposure": lambda state, inputs: 10.0 * state["topics"] + state[t],
        "shape_and_weights_move": spy.block(
            "r, W", ("shape", "weights", "hmc_acceptance"), ("precision",), 2
        ),
        "draw_embedding": spy.block("U", ("embedding",), drawn, 2),
        "draw_precision": spy.block("tau", ("precision",), ("weights",)),
        "log_likelihood_stat": lambda *arguments: 0.0,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(gibbs, name, fake)
    gibbs.sweep(jax.random.key(0), STORED, np.zeros((1, 1)), {}, row_scale)
    scaled = 1.0 if row_scale else 0.0
    # The counts of the new z, the exposure of the new V and t.
    sums = {"sum 0": 1.0, "sum 1": 11.0}
    assert spy.seen == [
        ("t, z", {"topics": 0.0, "embedding": 0.0}),
        *([("c", {t: 1.0, z: 1.0, "embedding": 0.0})] if row_scale else []),
        ("V", {t: 1.0, z: 1.0, "embedding": scaled}),
        ("r, W", {"precision": 0.0, **sums}),
        ("U", {"shape": 1.0, "weights": 1.0, **sums}),
        ("tau", {"weights": 1.0}),
    ]


def test_count_sweep_runs_in_the_order_that_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = _Spy()
    fakes = {
        "draw_counts": spy.block("m, hidden", ("counts", "hidden_counts"), ("topics", "embedding")),
        "draw_topics": spy.block("V", ("topics",), ("counts", "hidden_counts")),
        "draw_shape": spy.block("r", ("shape",), ("counts", "topics", "weights")),
        "draw_weights": spy.block("W", ("weights",), ("counts", "topics", "shape", "precision")),
        "count_exposure": lambda state, inputs: 10.0 * state["topics"],
        "row_counts": lambda state, inputs: state["counts"],
        "draw_embedding": spy.block("U", ("embedding",), ("shape", "weights"), 2),
        "draw_precision": spy.block("tau", ("precision",), ("weights",)),
        "log_likelihood_stat": lambda *arguments: 0.0,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(gibbs_counts, name, fake)
    gibbs_counts.sweep(jax.random.key(0), STORED, {})
    assert spy.seen == [
        ("m, hidden", {"topics": 0.0, "embedding": 0.0}),
        ("V", {"counts": 1.0, "hidden_counts": 1.0}),
        ("r", {"counts": 1.0, "topics": 1.0, "weights": 0.0}),
        ("W", {"counts": 1.0, "topics": 1.0, "shape": 1.0, "precision": 0.0}),
        ("U", {"shape": 1.0, "weights": 1.0, "sum 0": 1.0, "sum 1": 10.0}),
        ("tau", {"weights": 1.0}),
    ]


def test_tables_and_omega_are_drawn_just_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = _Spy()

    def natural(state: Mapping[str, Any], inputs: Any) -> tuple[Any, Any]:
        spy.look("W", state, ("omega", "shape"))
        return state["omega"], state["omega"]

    fakes = {
        "tables_given_rest": spy.claim("tables", "shape"),
        "shape_given_tables": spy.claim("r", "tables", "weights"),
        "blocked_log_gamma": lambda key, concentration: jnp.zeros(1),
        "omega_given_rest": spy.claim("omega", "shape", "weights"),
        "weights_natural": natural,
        "draw_gaussian_natural": lambda *arguments: jnp.ones(1),
        "precision_of": lambda state, inputs: state["precision"],
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(gibbs_counts, name, fake)
    inputs = {"shape": None, "X": None}
    now = gibbs_counts.draw_shape(jax.random.key(0), STORED, inputs)
    gibbs_counts.draw_weights(jax.random.key(1), now, inputs)
    assert spy.seen == [
        ("tables", {"shape": 0.0}),
        ("r", {"tables": 1.0, "weights": 0.0}),
        ("omega", {"shape": 1.0, "weights": 0.0}),
        ("W", {"omega": 1.0, "shape": 1.0}),
    ]

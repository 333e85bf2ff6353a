"""Hand-derived sweeps as NumPyro kernels, so that ``numpyro.infer.MCMC`` drives them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.infer.mcmc import MCMCKernel

Array = Any

PLACE = 0x504C
"""Folded into a chain's key for what `place` draws; no sweep splits a key into so many."""


class SweepState(NamedTuple):
    """State of a sweep.

    Attributes
    ----------
    i : int array, shape ()
        Sweeps made so far, warm-up included; shared by vectorised chains, so that a branch on it stays
        a branch.
    sites : dict
        Current values, one entry a site (leading chain axis when chains are vectorised).
    adapt : pytree
        What warm-up tunes; never changed after it.
    stats : dict
        Numbers of the last sweep (``log_likelihood``, acceptance rates), one a chain.
    rng_key : key array
    """

    i: Array
    sites: dict[str, Array]
    adapt: Any
    stats: dict[str, Array]
    rng_key: Array


class SweepKernel(MCMCKernel):
    """A Markov kernel made of a start, a sweep and an adaptation.

    Parameters
    ----------
    model : callable
        The summed view, for diagnostics and for anyone who asks the kernel what it samples.
    start : callable
        ``start(key, inputs) -> (sites, adapt)`` for one chain.
    sweep : callable
        ``sweep(key, sites, adapt, inputs) -> (sites, stats)`` for one chain.
    adapt : callable or None
        ``adapt(sites, adapt, inputs) -> adapt`` for one chain, called during warm-up only, after the
        sweeps in `adapt_at`.
    adapt_at : callable
        ``adapt_at(num_warmup) -> tuple of int``: after which warm-up sweeps to adapt.
    outputs : callable
        ``outputs(sites, inputs) -> dict`` of what is kept of a state (sites and deterministics).
    place : callable
        ``place(key, sites, given, inputs) -> sites`` for one chain: a start with the values of `given` in
        place, and whatever the sweep carries beside them (their logarithms, say) made to fit.
    """

    sample_field = "sites"

    def __init__(
        self,
        model: Callable[..., Any],
        start: Callable[..., Any],
        sweep: Callable[..., Any],
        *,
        adapt: Callable[..., Any] | None = None,
        adapt_at: Callable[[int], tuple[int, ...]] = lambda num_warmup: (),
        outputs: Callable[..., dict[str, Array]] = lambda sites, inputs: sites,
        place: Callable[..., dict[str, Array]] = lambda key, sites, given, inputs: {**sites, **given},
    ) -> None:
        self._model = model
        self._start = start
        self._sweep = sweep
        self._adapt = adapt
        self._adapt_at = adapt_at
        self._outputs = outputs
        self._place = place
        self._schedule: tuple[int, ...] = ()

    @property
    def model(self) -> Callable[..., Any]:
        """The summed view that the sweep leaves invariant after integrating its auxiliary variables."""
        return self._model

    @property
    def default_fields(self) -> tuple[str, ...]:
        """Fields collected by default."""
        return ("sites",)

    def init(
        self, rng_key: Array, num_warmup: int, init_params: Any, model_args: Any, model_kwargs: Any
    ) -> SweepState:
        """Return the first state of one chain, or of a batch when `rng_key` is a batch of keys.

        `init_params`, if given, replaces sites of the start by name, through `place`.
        """
        self._schedule = tuple(self._adapt_at(num_warmup)) if self._adapt is not None else ()
        batched = jnp.ndim(rng_key) > 0
        inputs = model_kwargs

        def one(key: Array) -> tuple[Any, Any, Any, Array]:
            key, start_key, sweep_key = jax.random.split(key, 3)
            sites, adapt = self._start(start_key, inputs)
            stats = jax.eval_shape(lambda: self._sweep(sweep_key, sites, adapt, inputs)[1])
            return sites, adapt, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), stats), key

        sites, adapt, stats, key = jax.vmap(one)(rng_key) if batched else one(rng_key)
        if init_params is not None:

            def put(key: Array, sites: Any, given: Any) -> Any:
                return self._place(jax.random.fold_in(key, PLACE), sites, given, inputs)

            sites = (jax.vmap(put) if batched else put)(key, sites, init_params)
        return SweepState(jnp.zeros((), jnp.int32), sites, adapt, stats, key)

    def sample(self, state: SweepState, model_args: Any, model_kwargs: Any) -> SweepState:
        """Make one sweep."""
        batched = jnp.ndim(state.rng_key) > 0
        inputs = model_kwargs

        def one(key: Array, sites: Any, adapt: Any) -> tuple[Array, Any, Any]:
            key, sweep_key = jax.random.split(key)
            sites, stats = self._sweep(sweep_key, sites, adapt, inputs)
            return key, sites, stats

        over_chains = jax.vmap if batched else (lambda f: f)
        key, sites, stats = over_chains(one)(state.rng_key, state.sites, state.adapt)
        adapt = state.adapt
        if self._schedule:
            tune = over_chains(lambda s, a: self._adapt(s, a, inputs))  # type: ignore[misc]
            due = jnp.any(state.i == jnp.array(self._schedule))
            adapt = jax.lax.cond(due, tune, lambda s, a: a, sites, adapt)
        return SweepState(state.i + 1, sites, adapt, stats, key)

    def postprocess_fn(self, model_args: Any, model_kwargs: Any) -> Callable[[Any], Any]:
        """Return the map from a state's sites to what is kept (deterministics included)."""
        return lambda sites: self._outputs(sites, model_kwargs)

    def get_diagnostics_str(self, state: SweepState) -> str:
        """Return the last sweep's numbers for the progress bar."""
        return ", ".join(f"{name} {float(jnp.mean(value)):.3g}" for name, value in state.stats.items())

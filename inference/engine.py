"""Engines: one way to compute a model's posterior, always ending in the same DataTree."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from labelzoo.inference.update import EngineKind
from labelzoo.models.spec import ModelSpec

Array = Any


class EngineResult(NamedTuple):
    """What an engine's `run` gives back, before it becomes a DataTree.

    Attributes
    ----------
    draws : dict of str to ndarray
        Site (or deterministic) to array (chain, draw, ...). ``bound`` engines give chain=1, draw=S;
        ``point`` engines chain=1, draw=1.
    sample_stats : dict of str to ndarray
        (chain, draw) statistics; empty for deterministic engines.
    optimization : dict of str to ndarray
        (iteration,) traces such as ``objective``; empty for samplers.
    compile_seconds, run_seconds : float
        Compilation apart from the run.
    converged : bool or None
        None where the engine does not judge itself (samplers).
    message : str
        Why it stopped, one sentence.
    attrs : dict
        Further numbers or strings to keep.
    """

    draws: dict[str, Array]
    sample_stats: dict[str, Array] = {}  # noqa: RUF012
    optimization: dict[str, Array] = {}  # noqa: RUF012
    compile_seconds: float = 0.0
    run_seconds: float = 0.0
    converged: bool | None = None
    message: str = ""
    attrs: dict[str, Any] = {}  # noqa: RUF012


@dataclass(frozen=True)
class Engine:
    """A way to compute a posterior.

    Parameters
    ----------
    name : str
        Registry name within the model.
    kind : {"mcmc", "bound", "point", "conjugate"}
    run : callable
        ``run(spec, inputs, *, rng_key, progress, **options) -> EngineResult``; called with 64-bit floats on.
    random_sites : tuple of str
        Sites that are random in the result (the others are points or absent).
    options : mapping
        Names and defaults of the engine's own options.
    overrides : mapping
        Settings of the program that the engine fixes unless the caller sets them (an EM that holds the
        shapes at their prior mean, say); recorded with the posterior.
    conditionals : tuple of str
        Names of the updates it runs.
    description : str
        One sentence for ``labelzoo list``.
    kernel : callable or None
        ``kernel(spec) -> MCMCKernel``: what an ``mcmc`` engine iterates, with its default options, so that
        the checks can start it where they like and run it on many data sets at once.
    """

    name: str
    kind: EngineKind
    run: Callable[..., EngineResult]
    random_sites: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    conditionals: tuple[str, ...] = ()
    description: str = ""
    kernel: Callable[[ModelSpec], Any] | None = None

    def __post_init__(self) -> None:
        for attribute in ("options", "overrides"):
            object.__setattr__(self, attribute, MappingProxyType(dict(getattr(self, attribute))))

    def __call__(
        self, spec: ModelSpec, data: Any, *, rng_key: Any, progress: bool = False, **settings: Any
    ) -> xr.DataTree:
        """Run on `data` and return the posterior as a DataTree.

        Parameters
        ----------
        spec : ModelSpec
        data : labelzoo.data.LabelData
        rng_key : jax.random.key or int
            The same key gives the same result.
        progress : bool
            Show progress on stderr.
        **settings
            Settings of the program and options of this engine.

        Raises
        ------
        ValueError
            If a name in `settings` is neither, or `data` does not fit the model.
        """
        from labelzoo.inference.posterior import to_datatree

        key = jax.random.key(rng_key) if isinstance(rng_key, int | np.integer) else rng_key
        program, options = self._split(spec, settings)
        with jax.enable_x64(True):
            inputs = spec.prepare(data, program)
            result = self.run(spec, inputs, rng_key=key, progress=progress, **options)
        return to_datatree(spec, self, data, inputs, program, options, result, rng_key)

    def _split(self, spec: ModelSpec, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        unknown = sorted(set(settings) - set(spec.settings) - set(self.options))
        if unknown:
            raise ValueError(
                f"{spec.name}: engine {self.name!r} knows no setting {', '.join(map(repr, unknown))}; "
                f"settings: {', '.join(sorted(spec.settings))}; options: {', '.join(sorted(self.options))}"
            )
        program = spec.resolve(
            {**self.overrides, **{k: v for k, v in settings.items() if k in spec.settings}}
        )
        return program, {**self.options, **{k: v for k, v in settings.items() if k in self.options}}

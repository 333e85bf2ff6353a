"""Engines: one way to compute a model's posterior, always ending in the same DataTree."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from labelzoo.arguments import label_data, random_key
from labelzoo.inference.program_memory import tidy_programs
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
    state : dict of str to ndarray
        What an online engine starts from when more rows come; kept in the group ``engine_state``.
    """

    draws: dict[str, Array]
    sample_stats: dict[str, Array] = {}  # noqa: RUF012
    optimization: dict[str, Array] = {}  # noqa: RUF012
    compile_seconds: float = 0.0
    run_seconds: float = 0.0
    converged: bool | None = None
    message: str = ""
    attrs: dict[str, Any] = {}  # noqa: RUF012
    state: dict[str, Array] = {}  # noqa: RUF012


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
    continue_from : callable or None
        ``continue_from(spec, inputs, previous, *, rng_key, progress, **options) -> EngineResult``, which
        makes an engine online: `inputs` are of new rows alone, `previous` is the DataTree of the rows before
        them, and the result is the posterior given all of them.
    takes_sparse : bool
        `run` takes inputs of which ``X`` is a sparse matrix. An engine that does not refuses the program's
        setting ``sparse_features=True``.
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
    continue_from: Callable[..., EngineResult] | None = None
    takes_sparse: bool = False

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
            If a name in `settings` is neither, a value could not be kept with the posterior, `rng_key` is no
            seed, or `data` does not fit the model.
        """
        label_data(data)
        random_key(rng_key)
        program, options = self._split(spec, settings)
        if options.get("resume_from") is not None:
            return self._resume(spec, data, rng_key, progress, settings)
        with jax.enable_x64(True):
            inputs = spec.prepare(data, program)
            result = self.run(spec, inputs, rng_key=random_key(rng_key), progress=progress, **options)
        tree = self._tree(spec, data, inputs, program, options, result, rng_key)
        if self.continue_from is not None:
            tree.attrs |= {"batches": 1, "rows_seen": int(data.num_rows)}
        return tree

    def _resume(
        self, spec: ModelSpec, data: Any, rng_key: Any, progress: bool, named: Mapping[str, Any]
    ) -> xr.DataTree:
        """Go on from ``named["resume_from"]``; its random keys go on too, `rng_key` is not used."""
        from labelzoo.inference.resume import joined, run_before

        given = {name: value for name, value in named.items() if name != "resume_from"}
        before = run_before(named["resume_from"], spec, self, data, given)
        options = {**before.options, "resume_from": before.state}
        with jax.enable_x64(True):
            inputs = spec.prepare(data, before.settings)
            result = self.run(spec, inputs, rng_key=random_key(rng_key), progress=progress, **options)
        tree = self._tree(spec, data, inputs, before.settings, before.options, result, rng_key)
        return joined(before.tree, tree)

    def update(
        self, spec: ModelSpec, previous: xr.DataTree, data: Any, *, rng_key: Any, progress: bool = False
    ) -> xr.DataTree:
        """Return the posterior given the rows behind `previous` and the new rows `data`.

        Settings and options are those of `previous`. The groups ``observed_data`` and ``constant_data`` are
        of the new rows; the attributes ``batches`` and ``rows_seen`` count all.

        Parameters
        ----------
        spec : ModelSpec
        previous : DataTree
            Of this model and engine.
        data : labelzoo.data.LabelData
            New rows, with the features and labels of the rows before.
        rng_key : jax.random.key or int
        progress : bool

        Raises
        ------
        ValueError
            If the engine is not online, or model, engine, features or labels differ.
        """
        from labelzoo.inference.predict import constants_of

        if self.continue_from is None:
            raise ValueError(f"{spec.name}: engine {self.name!r} is not online: fit all rows together")
        _refuse_other(spec, self, previous, data)
        constants = constants_of(previous)
        program = {name: constants[name] for name in spec.settings}
        options = json.loads(previous.attrs["options"])
        with jax.enable_x64(True):
            inputs = spec.prepare(data, program, constants)
            result = self.continue_from(
                spec, inputs, previous, rng_key=random_key(rng_key), progress=progress, **options
            )
        tree = self._tree(spec, data, inputs, program, options, result, rng_key)
        tree.attrs["batches"] = int(previous.attrs["batches"]) + 1
        tree.attrs["rows_seen"] = int(previous.attrs["rows_seen"]) + int(data.num_rows)
        return tree

    def _tree(
        self,
        spec: ModelSpec,
        data: Any,
        inputs: Mapping[str, Any],
        program: Mapping[str, Any],
        options: Mapping[str, Any],
        result: EngineResult,
        rng_key: Any,
    ) -> xr.DataTree:
        from labelzoo.inference.posterior import to_datatree

        tree = to_datatree(spec, self, data, inputs, program, options, result, rng_key)
        tidy_programs()
        if result.state:
            arrays = {name: np.asarray(value) for name, value in result.state.items()}
            tree["engine_state"] = xr.DataTree(
                xr.Dataset(
                    {
                        name: ([f"{name}_dim_{i}" for i in range(value.ndim)], value)
                        for name, value in arrays.items()
                    }
                )
            )
        return tree

    def _split(self, spec: ModelSpec, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        unknown = sorted(set(settings) - set(spec.settings) - set(self.options))
        if unknown:
            raise ValueError(
                f"{spec.name}: engine {self.name!r} knows no setting {', '.join(map(repr, unknown))}; "
                f"settings: {', '.join(sorted(spec.settings))}; options: {', '.join(sorted(self.options))}"
            )
        settings = {name: _kept(name, value) for name, value in settings.items()}
        program = spec.resolve(
            {**self.overrides, **{k: v for k, v in settings.items() if k in spec.settings}}
        )
        if program.get("sparse_features") is True and not self.takes_sparse:
            raise ValueError(
                f"{spec.name}: engine {self.name!r} needs the features as an array: leave "
                f"sparse_features=True out{_that_take_sparse(spec)}"
            )
        return program, {**self.options, **{k: v for k, v in settings.items() if k in self.options}}


def _kept(name: str, value: Any) -> Any:
    """Return a setting as it is kept with the posterior: arrays as tuples, NumPy's numbers as Python's."""
    if name == "resume_from":
        return value
    try:
        plain = _plain(value)
        json.dumps(plain)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{name} must be a number, a string, True, False, None or a sequence of these, "
            f"got a {type(value).__name__}"
        ) from error
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray | jax.Array):
        value = np.asarray(value).tolist()
        return tuple(value) if isinstance(value, list) else value
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


def _that_take_sparse(spec: ModelSpec) -> str:
    """Say which engines of a registered model take sparse features; nothing where there are none."""
    from labelzoo.models import registry

    entry = registry.registered(spec)
    able = [] if entry is None else [engine.name for engine in entry.engines.values() if engine.takes_sparse]
    return f", or use one of the engines that take them sparse: {', '.join(able)}" if able else ""


def _refuse_other(spec: ModelSpec, engine: Engine, previous: xr.DataTree, data: Any) -> None:
    """Refuse to continue a posterior of another model or engine, or with other features or labels."""
    for what, name in (("model", spec.name), ("engine", engine.name)):
        if previous.attrs[what] != name:
            raise ValueError(f"the posterior to continue is of {what} {previous.attrs[what]!r}, not {name!r}")
    refuse_other_columns(previous, data)


def refuse_other_columns(
    previous: xr.DataTree, data: Any, kinds: tuple[str, ...] = ("feature", "label")
) -> None:
    """Refuse rows with other features or labels than those of a posterior; ValueError naming the first."""
    for what in kinds:
        names = getattr(data, f"{what}_names")
        before = json.loads(previous.attrs[f"{what}_names"])
        if list(names) != before:
            pairs = zip(before, names, strict=False)
            at = next((f": {a!r} before, {b!r} now" for a, b in pairs if a != b), "")
            raise ValueError(
                f"new rows must have the {what}s of the rows before, in their order "
                f"({len(before)} before, {len(names)} now{at})"
            )

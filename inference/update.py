"""A hand-derived update, written as the distribution it claims."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Claim = Any
"""A NumPyro distribution, or a mapping from site to distribution for a block of independent sites."""


@dataclass(frozen=True)
class Mutant:
    """A deliberately wrong version of an update, planted to see whether the checks notice.

    Parameters
    ----------
    name : str
        What is wrong, in words.
    given : callable
        The wrong claim, with the signature of `Update.given`.
    """

    name: str
    given: Callable[[Mapping[str, Any], Mapping[str, Any]], Claim]


@dataclass(frozen=True)
class Update:
    """One block update of an engine and what it claims.

    Parameters
    ----------
    name : str
        The function's name.
    sites : tuple of str
        The block: sites of `view` that the update draws or maximises.
    view : str
        The view (a program of the model) that the claim is held against.
    given : callable
        ``given(state, inputs)``: the conditional distribution of the block given all other sites of the
        view in `state` (a mapping from site to value; the block's own values must not be read). Returns a
        NumPyro distribution for one site, or a mapping from site to distribution. A distribution whose
        ``normalized`` attribute is False has a log density up to a constant. For an update that is a
        kernel (HMC, independence step) `given` returns a callable ``log_density(block) -> float`` up to a
        constant, where `block` maps the sites to values, and `kernel` is set.
    kernel : callable or None
        ``kernel(key, state, inputs) -> state``: a Markov step that leaves the claim invariant.
    mutants : tuple of Mutant
        Wrong versions that the checks must reject.
    equation : str
        Where the published update stands, or "this project".
    """

    name: str
    sites: Any
    view: str
    given: Callable[[Mapping[str, Any], Mapping[str, Any]], Claim]
    kernel: Callable[..., Any] | None = None
    mutants: Any = field(default=())
    equation: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.sites, str) or not all(isinstance(site, str) for site in self.sites):
            raise ValueError(f"update {self.name!r}: sites must be a tuple of names, got {self.sites!r}")
        if not self.sites:
            raise ValueError(f"update {self.name!r}: sites is empty; name the block that the update draws")
        object.__setattr__(self, "sites", tuple(self.sites))
        object.__setattr__(self, "mutants", tuple(self.mutants))


EngineKind = Literal["mcmc", "bound", "point", "conjugate"]
"""mcmc: exact in the limit; bound: mean field, SVI; point: EM, MAP; conjugate: closed form."""

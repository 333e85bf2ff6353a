"""What a study is: its plan, which names every choice, and the identity by which a database is recognised."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from labelzoo.models.gp_kernel import RULES

FORMAT = 1
"""Number of the database layout."""
OPEN = ("acquire", "seeds", "rounds", "data")
"""Fields that may grow (or be spelled otherwise) when a study is resumed."""
SPLITS = ("published", "random", "stratified")
TARGETS = ("pool", "predict", "all")
EVALUATORS = ("own", "common")


@dataclass(frozen=True)
class Plan:
    """A simulated active-learning study.

    Attributes
    ----------
    data : str
        How the data were named.
    data_hash : str
        Hash of their contents.
    learner, engine : str
        Model of the zoo and its engine.
    settings : dict
        Settings of both.
    acquire : tuple of str
        Acquisition functions, each beside ``random``.
    start, rounds, batch : int
        Rows labelled at the start, rounds after it, rows asked in a round.
    seeds : tuple of int
        One split and one start each; the same for every acquisition function.
    split : str
        ``published`` pool and deployment rows, or ``random`` or ``stratified`` re-splits by seed.
    test_fraction : float
        Share of deployment rows in a re-split.
    targets : str
        ``predict``: the deployment rows T, features only; ``pool``; ``all``: both.
    evaluators : tuple of str
        ``own``: the learner; ``common``: one-vs-rest logistic regression on the same rows.
    refit : int
        The learner is refitted every so many rounds for its own predictions and scores.
    num_draws : int
        Posterior draws that a score may read.
    max_seconds : float or None
        A cell whose function has taken more CPU seconds than this to choose, all rounds together, is not run
        any further, and the function not at all with other seeds.
    score_kernel : str
        How scores that read a kernel choose its length and noise, whatever the learner does: a rule of
        `labelzoo.inference.label_gp.evidence`.
    oracle : int
        Random batches out of which the oracle reference takes the best by true error; 0: no oracle.
    """

    data: str
    data_hash: str
    learner: str
    engine: str
    settings: dict[str, Any]
    acquire: tuple[str, ...]
    start: int = 20
    rounds: int = 20
    batch: int = 10
    seeds: tuple[int, ...] = (0,)
    split: str = "random"
    test_fraction: float = 1 / 3
    targets: str = "predict"
    evaluators: tuple[str, ...] = EVALUATORS
    refit: int = 1
    num_draws: int = 200
    max_seconds: float | None = None
    score_kernel: str = "guarded"
    oracle: int = 0

    def __post_init__(self) -> None:
        for name, known in (("split", SPLITS), ("targets", TARGETS), ("score_kernel", RULES)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        unknown = [name for name in self.evaluators if name not in EVALUATORS]
        if unknown or not self.evaluators or len(set(self.evaluators)) < len(self.evaluators):
            raise ValueError(
                f"evaluators must be among {', '.join(EVALUATORS)}, each once, got {self.evaluators!r}"
            )
        for name in ("start", "batch", "refit", "num_draws"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 0:
            raise ValueError(f"rounds must be an integer of at least 0, got {self.rounds!r}")
        if not 0 < self.test_fraction < 1:
            raise ValueError(f"test_fraction must lie between 0 and 1, got {self.test_fraction!r}")
        cap = self.max_seconds
        if cap is not None and (isinstance(cap, bool) or not 0 < cap < float("inf")):
            raise ValueError(f"max_seconds (the cost cap) must be a positive number, got {cap!r}")
        if isinstance(self.oracle, bool) or not isinstance(self.oracle, int) or self.oracle < 0:
            raise ValueError(f"oracle must be an integer of at least 0, got {self.oracle!r}")
        if not self.acquire or len(set(self.acquire)) < len(self.acquire):
            raise ValueError(f"acquire must name functions, each once, got {', '.join(self.acquire)!r}")
        if ("oracle" in self.acquire) != (self.oracle > 0):
            raise ValueError(
                "acquire names 'oracle' exactly when oracle, the number of batches, is at least 1; "
                f"got oracle={self.oracle} with {', '.join(self.acquire)}"
            )
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError(f"seeds must be distinct integers of at least 0, got {self.seeds!r}")

    def to_json(self) -> str:
        """Return the plan as canonical JSON."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Read what `to_json` wrote."""
        values = json.loads(text)
        for name in ("acquire", "seeds", "evaluators"):
            values[name] = tuple(values[name])
        return cls(**values)

    def identity(self) -> str:
        """Return the hash of all that decides results: everything but which cells and how many rounds."""
        values = asdict(self)
        for name in OPEN:
            values.pop(name)
        text = json.dumps(values, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(f"study {FORMAT} {text}".encode()).hexdigest()

    def cells(self) -> list[tuple[str, int]]:
        """Return every (acquisition, seed), seed by seed, so that a stopped study has whole comparisons."""
        return [(name, seed) for seed in self.seeds for name in self.acquire]


def round_seed(seed: int, what: str, number: int) -> int:
    """Return the seed of one use in one round: results do not depend on what ran before."""
    digest = hashlib.sha256(f"{seed} {what} {number}".encode()).digest()
    return int.from_bytes(digest[:4], "big")

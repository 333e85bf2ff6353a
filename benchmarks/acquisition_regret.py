"""What asking from an approximate posterior loses: regret of engines on three models, a table and a picture.

Run ``python benchmarks/acquisition_regret.py --out out``; each of the four jobs takes two to nine minutes on
a busy machine, and ``--models`` names some of them. Data are simulated here; where ``--emotions`` (by default
../shared/data/npz/emotions.npz) exists, ``label_logistic`` is measured on real rows as well. Definition and
reading: docs/regret.md.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

# Threads that wait for one another cost more than they bring at these sizes; to be set before NumPy loads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax

from labelzoo.data import load
from labelzoo.models import registry
from labelzoo.regret_picture import regret_picture
from labelzoo.regret_run import measure_regret
from labelzoo.regret_text import regret_text

HERE = Path(__file__).resolve().parents[1]
EMOTIONS = Path(os.environ.get("LABELZOO_DATA", HERE / "../shared/data")) / "npz" / "emotions.npz"
QUICK: dict[str, Any] = {"khat_samples": 0, "num_steps": 2000}
TOPICS: dict[str, Any] = {"num_topics": 2, "shape": 1.0, "prior_scale": 0.5}
"""With these the exact Gibbs sampler converges within a minute; with more freedom, on few rows, not."""
SMALL: dict[str, Any] = {"pool": 60, "targets": 60, "draws": 200, "repeats": 5}


def simulated(model: str, seed: int, rows: int, features: int, labels: int, **settings: Any) -> Any:
    """Return data drawn from the prior of a model."""
    sizes = {"num_obs": rows, "num_features": features, "num_labels": labels}
    sizes |= {"num_topics": settings.pop("num_topics", 1)}
    with jax.enable_x64(True):
        data, _ = registry.get(model).spec.simulate(jax.random.key(seed), sizes, **settings)
    return data


def jobs(seed: int, emotions: Path) -> list[tuple[str, str, Any, dict[str, Any]]]:
    """Return (model, name of the data, data, options) of every line of the table."""
    logistic = simulated("label_logistic", seed, 220, 5, 6)
    topics = simulated("bernoulli_poisson_topics", seed + 1, 180, 3, 5, **TOPICS)
    svi = {"engine_settings": {"svi": QUICK}}
    found: list[tuple[str, str, Any, dict[str, Any]]] = [
        (
            "label_logistic", "simulated", logistic,
            {
                "engines": ["gibbs", "mean_field", "svi"],
                "engine_settings": {"svi": QUICK, "gibbs": {"num_warmup": 200, "num_samples": 200}},
            },
        ),
        (
            "bernoulli_poisson_topics", "simulated", topics,
            {
                "engines": ["map_em", "vb_em", "svi"], "reference": "gibbs", **TOPICS, **SMALL,
                "engine_settings": {"svi": QUICK, "gibbs": {"thinning": 16, "num_warmup": 500}},
            },
        ),
        ("label_gp", "simulated logistic", logistic, {"engines": ["svi"], "draws": 500, **svi}),
    ]  # fmt: skip
    if emotions.exists():
        data = load(emotions)
        real = data.subset(features=data.feature_names[:8])
        found.append(("label_logistic", "emotions", real, {"engines": ["mean_field", "svi"], **svi}))
    return found


def main() -> None:
    """Measure, print, and write ``acquisition_regret.json`` and ``acquisition_regret.png``."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--emotions", type=Path, default=EMOTIONS)
    parser.add_argument("--models", default="", help="only these, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    wanted = [name for name in args.models.split(",") if name]
    payloads = []
    for model, name, data, options in jobs(args.seed, args.emotions):
        if wanted and model not in wanted:
            continue
        start = time.perf_counter()
        payload = measure_regret(model, data, seed=args.seed, **options) | {"data": name}
        print(regret_text(payload), f"\n{time.perf_counter() - start:.0f} s\n", flush=True)
        payloads.append(payload)
    (args.out / "acquisition_regret.json").write_text(json.dumps(payloads, indent=1))
    (args.out / "acquisition_regret.png").write_bytes(regret_picture(payloads))


if __name__ == "__main__":
    main()

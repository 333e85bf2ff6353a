"""Topic tables, names and pictures; and top-k prediction in blocks."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy import sparse

import labelzoo
from labelzoo.cli import run
from labelzoo.completion import complete_top, globals_of, row_blocks
from labelzoo.data import LabelData
from labelzoo.data.missing import Missing
from labelzoo.inference import predict as module
from labelzoo.inference.engine import EngineResult
from labelzoo.inference.posterior import save, to_datatree
from labelzoo.inference.predict import mean_prob, predict_topk
from labelzoo.inference.predictions import write_predictions
from labelzoo.models import registry
from labelzoo.topic_coherence import LabelCounts, coherence
from labelzoo.topics import as_json, as_text, choose_draw, name_topics, topic_table
from labelzoo.topics_picture import topics_png

SPEC = registry.get("bernoulli_poisson_topics").spec
NAMES = ("cat", "dog", "car", "bus", "sky", "sea")
CLEAR = np.array(
    [
        [0.5, 0.4, 0.02, 0.02, 0.05, 0.01],
        [0.02, 0.02, 0.5, 0.4, 0.01, 0.05],
        [0.01, 0.01, 0.01, 0.01, 0.5, 0.46],
    ]
)
ORDER = np.array([2, 0, 1])


def labelled(n: int = 60, seed: int = 0) -> LabelData:
    rng = np.random.default_rng(seed)
    lam = rng.gamma(0.5, 2.0, (n, 3)) @ CLEAR
    return LabelData.from_arrays(
        rng.standard_normal((n, 2)), (rng.random(lam.shape) < -np.expm1(-lam)).astype(int), label_names=NAMES
    )


def tree_of(data: LabelData, sites: dict[str, Any]) -> xr.DataTree:
    """Return the DataTree that a sampler with these draws of three topics would have given."""
    settings = SPEC.resolve({"num_topics": 3})
    engine = registry.get(SPEC).engines["gibbs"]
    return to_datatree(SPEC, engine, data, SPEC.prepare(data, settings), settings, {}, EngineResult(sites), 0)


def two_chains(data: LabelData) -> xr.DataTree:
    """Chain 1 fits and switches labels in every other draw; chain 0 has flat topics."""
    rng = np.random.default_rng(1)
    topics = np.full((2, 4, 3, 6), 1 / 6)
    embedding = np.full((2, 4, data.num_rows, 3), 0.3)
    Y = data.Y.toarray()
    u = 0.05 + np.stack([Y[:, :2].sum(1), Y[:, 2:4].sum(1), Y[:, 4:].sum(1)], axis=1)
    for d in range(4):
        noisy = CLEAR + 0.002 * rng.random(CLEAR.shape)
        order = ORDER if d % 2 else np.arange(3)
        topics[1, d] = (noisy / noisy.sum(axis=1, keepdims=True))[order]
        embedding[1, d] = u[:, order]
    sites = {
        "topics": topics,
        "embedding": embedding,
        "weights": np.zeros((2, 4, 3, 3)),
        "shape": np.ones((2, 4, 3)),
    }
    return tree_of(data, sites)


@pytest.fixture(scope="module")
def tree() -> xr.DataTree:
    return two_chains(labelled())


def test_the_table_is_one_draw_of_the_best_chain(tree: xr.DataTree) -> None:
    table = topic_table(tree, 3)
    assert table.attrs["chain"] == 1
    V = tree["posterior"]["topics"].values[1, table.attrs["draw"]]
    for k, topic in table.iterrows():
        assert [p for _, p in topic["probable"]] == sorted(V[k], reverse=True)[:3]
        assert dict(topic["probable"])[NAMES[V[k].argmax()]] == V[k].max()
        assert topic["name"].split(", ")[0] == topic["distinctive"][0][0]
    first = {frozenset(name for name, _ in topic["probable"][:2]) for _, topic in table.iterrows()}
    assert first == {frozenset(pair) for pair in (("cat", "dog"), ("car", "bus"), ("sky", "sea"))}
    assert np.isclose(table["weight"].sum(), 1)
    assert table["weight"].is_monotonic_decreasing
    assert (table["stability"] > 0.99).all()  # label switching is undone within the chain
    assert topic_table(tree, chain=0)["stability"].round(6).eq(1).all()


def test_lift_is_probability_over_overall_share(tree: xr.DataTree) -> None:
    table = topic_table(tree, 6)
    counts = labelled().Y.toarray().sum(axis=0)
    share = dict(zip(NAMES, (counts + 0.5) / (counts.sum() + 3), strict=True))
    for _, topic in table.iterrows():
        probs = dict(topic["probable"])
        part = [probs[name] * np.log(lift) for name, lift in topic["distinctive"]]
        assert part == sorted(part, reverse=True)
        for name, lift in topic["distinctive"]:
            assert np.isclose(lift, probs[name] / share[name])
            assert lift > 1
        assert np.isclose(topic["distance"], sum(p * np.log(p / share[name]) for name, p in probs.items()))
        assert np.isclose(topic["effective_labels"], np.exp(-sum(p * np.log(p) for p in probs.values())))


def test_coherence_by_hand_with_missing_cells() -> None:
    Y = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1], [1, np.nan, 0], [np.nan] * 3])
    data = LabelData.from_arrays(np.zeros((6, 1)), Y)
    counts = LabelCounts.of_data(data)

    def npmi(both: float, i: float, j: float, n: float) -> float:
        p, q = (i + 0.5) / (n + 1), (j + 0.5) / (n + 1)
        joint = (both + p * q) / (n + 1)
        return float(np.log(joint / (p * q)) / -np.log(joint))

    assert np.isclose(coherence(counts, np.array([0, 1])), npmi(2, 2, 2, 4))
    assert np.isclose(coherence(counts, np.array([0, 2])), npmi(0, 3, 2, 5))
    every = np.mean([npmi(2, 2, 2, 4), npmi(0, 3, 2, 5), npmi(0, 2, 2, 4)])
    assert np.isclose(coherence(counts, np.arange(3)), every)
    assert coherence(counts, np.array([0, 1])) > 0 > coherence(counts, np.array([0, 2]))
    assert np.isnan(coherence(counts, np.array([0])))
    observed = LabelData.from_arrays(np.zeros((6, 1)), np.where(np.arange(3) < 2, Y, np.nan))
    assert np.isclose(coherence(LabelCounts.of_data(observed), np.array([0, 1])), npmi(2, 2, 2, 4))


def test_names_are_a_coordinate_of_one_chain_only(tree: xr.DataTree) -> None:
    named = name_topics(tree)
    posterior = named["posterior"].to_dataset()
    assert posterior.sizes["chain"] == 1
    chosen = choose_draw(tree)
    assert "chain 1" in named.attrs["topic_names_from"]
    pivot = tree["posterior"]["topics"].values[1, chosen.draw]
    for d in range(4):
        assert np.abs(posterior["topics"].values[0, d] - pivot).max() < 0.01
        name = posterior["topic"].values[int(posterior["embedding"].values[0, d, 0].argmax())]
        assert name == posterior["topic"].values[int(posterior["embedding"].values[0, 0, 0].argmax())]
    assert tree["posterior"].sizes["chain"] == 2


def test_missing_cells_do_not_count_as_zeros_when_the_draw_is_chosen() -> None:
    Y = labelled().Y.toarray().astype(float)
    Y[:, 4:] = np.nan
    data = LabelData.from_arrays(labelled().X, Y, label_names=NAMES)
    tree = two_chains(data)
    table = topic_table(tree)
    assert table.attrs["chain"] == 1
    one = tree["posterior"].to_dataset().isel(chain=1, draw=table.attrs["draw"])
    inputs = SPEC.prepare(data, SPEC.resolve({"num_topics": 3}))
    from labelzoo.models.bernoulli_poisson_topics import log_likelihood
    from labelzoo.topics import _fits

    direct = log_likelihood(
        one["topics"].values, one["embedding"].values, inputs["positives"], inputs["negatives"]
    )
    assert np.isclose(_fits(tree, 1, np.array([table.attrs["draw"]]))[0], direct)


def test_point_engines_repeated_names_and_other_data(tree: xr.DataTree) -> None:
    data = labelled()
    point = labelzoo.fit("bernoulli_poisson_topics", data, "vb_em", num_topics=3, max_iter=20)
    table = topic_table(point, data=data.subset(rows=range(20)))
    assert table.attrs["why"] == "the only draw"
    assert table["name"].is_unique
    with pytest.raises(ValueError, match="labels are not those"):
        topic_table(point, data=data.subset(labels=range(3)))
    with pytest.raises(ValueError, match="num_labels must be"):
        topic_table(point, 0)
    with pytest.raises(ValueError, match="chain must be an integer from 0 to 1"):
        topic_table(tree, chain=2)


def test_without_embeddings_the_stored_fit_chooses(tree: xr.DataTree) -> None:
    bare = tree.copy()
    bare["posterior"] = xr.DataTree(tree["posterior"].to_dataset().drop_vars("embedding"))
    assert choose_draw(bare) == (0, 3, "the last draw kept")
    fits = xr.DataArray([[-1.0, -9.0, -9.0, -9.0], [-4.0, -4.0, -3.0, -5.0]], dims=("chain", "draw"))
    bare["sample_stats"] = xr.DataTree(xr.Dataset({"log_likelihood": fits}))
    assert choose_draw(bare)[:2] == (1, 2)
    assert choose_draw(bare, chain=0)[:2] == (0, 0)
    assert choose_draw(bare, draw=3)[:2] == (1, 3)
    assert choose_draw(bare, chain=0, draw=1)[:2] == (0, 1)


def test_one_draw_has_no_stability(tree: xr.DataTree) -> None:
    one = tree.copy()
    one["posterior"] = xr.DataTree(tree["posterior"].to_dataset().isel(chain=[1], draw=[0]))
    table = topic_table(one)
    assert table["stability"].isna().all()
    assert as_text(table).count("stability -") == 3
    assert all(topic["stability"] is None for topic in as_json(table))


@pytest.mark.parametrize("topics", [3, 26])
def test_pictures_hold_every_topic(tree: xr.DataTree, topics: int) -> None:
    table = topic_table(tree, 6)
    chosen = table.iloc[np.arange(topics) % 3]
    chosen.attrs = table.attrs
    png = topics_png(chosen)
    assert png.startswith(b"\x89PNG")
    width, height = (int.from_bytes(png[at : at + 4]) for at in (16, 20))
    assert width < 3000
    assert height < 4000


def test_commands(tmp_path: Path, tree: xr.DataTree, capsys: Any) -> None:
    save(tree, tmp_path / "f.nc")
    options = ["--labels", "3", "--out", str(tmp_path / "t.png"), "--json"]
    assert run(["topics", str(tmp_path / "f.nc"), *options]) == 0
    payload = json.loads(capsys.readouterr().out)
    assert payload["topics"] == json.loads(json.dumps(as_json(topic_table(tree, 3))))
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    assert run(["topics", str(tmp_path / "f.nc")]) == 0
    assert as_text(topic_table(tree, 10), 10) in capsys.readouterr().out
    Y = labelled().Y.toarray().astype(float)
    Y[::2, 1] = np.nan
    LabelData.from_arrays(labelled().X, Y, label_names=NAMES).save_npz(tmp_path / "d.npz")
    base = ["complete", str(tmp_path / "f.nc"), "--data", str(tmp_path / "d.npz"), "--json", "--out"]
    assert run([*base, str(tmp_path / "p.npz")]) == 0
    payload = json.loads(capsys.readouterr().out)
    assert payload["missing"] == 30
    with np.load(tmp_path / "p.npz") as saved:
        seen = np.isfinite(Y)
        assert np.array_equal(saved["prob"][seen], Y[seen])
        first = saved["prob"][0, 1]
    assert run([*base, str(tmp_path / "q.npz"), "--top", "1"]) == 0
    with np.load(tmp_path / "q.npz") as saved:
        assert saved["top_labels"][:2, 0].tolist() == [1, -1]
        assert np.isclose(saved["top_prob"][0, 0], first)
    capsys.readouterr()
    assert run([*base, str(tmp_path / "p.csv")]) == 2
    assert "must end in .npz" in capsys.readouterr().err


def wide_tree(rng: np.random.Generator, num_labels: int) -> xr.DataTree:
    """Return a posterior of three topics over many labels, fitted on nothing."""
    data = LabelData.from_arrays(rng.standard_normal((4, 2)), np.eye(4, num_labels, dtype=np.int8))
    sites = {
        "topics": rng.dirichlet(np.full(num_labels, 0.1), (1, 1, 3)),
        "weights": rng.standard_normal((1, 1, 3, 3)),
        "shape": np.ones((1, 1, 3)),
    }
    return tree_of(data, sites)


def peak_of(run: Any) -> tuple[Any, int]:
    """Return the result of `run` and the largest memory that NumPy held meanwhile, bytes."""
    tracemalloc.start()
    try:
        return run(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_top_labels_of_many_rows_need_no_table() -> None:
    """3000 rows x 2000 labels would be 48 MB; the blocks are told to stay below 2 MB of working memory."""
    n, num_labels = 3000, 2000
    rng = np.random.default_rng(0)
    wide = wide_tree(rng, num_labels)
    X = rng.standard_normal((n, 2))
    predict_topk(wide, X[:40], 5, max_bytes=2**21)
    found, peak = peak_of(lambda: predict_topk(wide, X, 5, max_bytes=2**21))
    assert peak < 8 * n * num_labels / 8, f"peak {peak / 2**20:.1f} MiB"
    dense = mean_prob(wide, X[:40])
    np.testing.assert_allclose(found.scores[:40], -np.sort(-dense, axis=1)[:, :5], rtol=1e-12)


def test_predict_top_goes_by_blocks_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `labelzoo predict --top` writes: the best labels, from blocks whose sizes are watched."""
    n, num_labels = 1300, 400
    rng = np.random.default_rng(1)
    wide = wide_tree(rng, num_labels)
    data = LabelData.from_arrays(rng.standard_normal((n, 2)), np.zeros((n, num_labels), np.int8))
    dense, blocks, real = mean_prob(wide, data), [], module._blocks

    def watched(*args: Any) -> Any:
        for start, block in real(*args):
            blocks.append(block.shape)
            yield start, block

    monkeypatch.setattr(module, "_blocks", watched)
    write_predictions(wide, data, tmp_path / "p.npz", top=3)
    assert [shape[1] for shape in blocks] == [512, 512, 276]
    with np.load(tmp_path / "p.npz") as saved:
        labels = saved["prob_indices"].reshape(n, 3)
        assert (np.diff(labels, axis=1) > 0).all()
        expected = np.sort(np.argsort(-dense, axis=1)[:, :3], axis=1)
        assert np.array_equal(labels, expected)
        np.testing.assert_allclose(
            saved["prob_data"].reshape(n, 3), np.take_along_axis(dense, expected, axis=1)
        )
        assert saved["prob_shape"].tolist() == [n, num_labels]


def test_top_completions_of_many_rows_need_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """1500 unlabelled rows x 2000 labels would be 24 MB, each of prob and error; blocks hold 16 rows."""
    n, num_labels = 1500, 2000
    rng = np.random.default_rng(2)
    wide = wide_tree(rng, num_labels)
    Y = sparse.csr_array(([1], ([0], [7])), shape=(n, num_labels))
    hidden = Missing(np.arange(n) > 0)
    data = LabelData(rng.standard_normal((n, 2)), Y, missing=hidden)
    monkeypatch.setattr("labelzoo.completion.CELLS_AT_ONCE", 2**15)
    complete_top(wide, data.subset(rows=range(20)), 5)
    found, peak = peak_of(lambda: complete_top(wide, data, 5))
    assert peak < 8 * n * num_labels / 4, f"peak {peak / 2**20:.1f} MiB"
    assert (found.labels[0] == -1).all()
    expected = -np.sort(-mean_prob(wide, data.subset(rows=range(1, 30))), axis=1)[:, :5]
    np.testing.assert_allclose(found.scores[1:30], expected, rtol=1e-9)


def test_wide_features_are_made_dense_a_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    data = LabelData.from_arrays(
        sparse.random_array((50, 40), density=0.1, rng=0), np.eye(50, 3, dtype=np.int8)
    )
    monkeypatch.setattr("labelzoo.completion.CELLS_AT_ONCE", 200)
    point = labelzoo.fit("bernoulli_poisson_topics", data, "map_em", num_topics=2, max_iter=3)
    sizes = {block.data.num_rows for block in row_blocks(point, data, globals_of(point, None))}
    assert sizes == {5}

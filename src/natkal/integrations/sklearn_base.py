"""What the scikit-learn estimators share: parameters, validation of rows and weights, and the table learner."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from natkal.integrations.estimator_core import PortableLearner, options_of
from natkal.integrations.frame_columns import FrameColumns, has_other_than_numbers
from natkal.tables.coefficients import Coefficients, coefficients
from natkal.tables.engine.batch import TargetPrediction
from natkal.tables.table import TargetShape

FEW_ROWS, FEW_ROWS_PASSES = 20_000, 3
"""Up to so many rows `fit` goes through them several times, unless told how often."""


class KalmanEstimator(BaseEstimator):
    """Stores its parameters, as scikit-learn asks; `fit` and `partial_fit` check them."""

    n_features_in_: int

    def __init__(
        self,
        hidden_layer_sizes: Any = None,
        *,
        learner: Any = "auto",
        model: Any = "auto",
        prior_scale: Any = None,
        fading: Any = None,
        past: Any = "none",
        budget: Any = "auto",
        memory: Any = None,
        standardize: Any = True,
        n_iter: Any = "auto",
        random_state: Any = None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.learner = learner
        self.model = model
        self.prior_scale = prior_scale
        self.fading = fading
        self.past = past
        self.budget = budget
        self.memory = memory
        self.standardize = standardize
        self.n_iter = n_iter
        self.random_state = random_state

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:
        """The features as numbers, NaN where missing; a frame's other columns as `tables/encode` encodes them."""
        _refuse_words(X)
        if not has_other_than_numbers(X):
            if reset:
                self._frame_columns = None
            elif self._frame_columns is not None:
                raise ValueError("X: must be a frame with the columns that were learned from, some are not numbers")
            checked: Any = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=reset)
            return checked
        validate_data(self, X, skip_check_array=True, reset=reset)
        if reset:
            self._frame_columns = FrameColumns(X)
        elif self._frame_columns is None:
            raise ValueError("X: has columns that are not numbers, and those that were learned from are")
        return self._frame_columns.numbers(X)

    def _rows_and_targets(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        if has_other_than_numbers(X):
            check_consistent_length(X, y)
            return self._rows(X, reset=reset), column_or_1d(y, warn=True)
        _refuse_words(X)
        numeric = self._target_is_numeric
        X, y = validate_data(
            self, X, y, dtype=np.float64, ensure_all_finite="allow-nan", y_numeric=numeric, reset=reset
        )
        if reset:
            self._frame_columns = None
        return X, column_or_1d(y, warn=True)

    # -- learning ------------------------------------------------------------------------------------------------------

    def _begin(self, X: np.ndarray, target: TargetShape, *, forget: bool) -> None:
        """A new learner for rows like these; `forget` where they come in an order in time."""
        whole = isinstance(self.n_iter, int | np.integer) and self.n_iter >= 1
        if not whole and not (isinstance(self.n_iter, str) and self.n_iter == "auto"):
            raise ValueError(f'n_iter: must be "auto" or a whole number of at least 1, got {self.n_iter!r}')
        seed = 0 if self.random_state is None else int(check_random_state(self.random_state).randint(2**31 - 1))
        scaled = [True] * X.shape[1] if self._frame_columns is None else self._frame_columns.scaled
        self._table = PortableLearner(options_of(self, seed, forget=forget), scaled, [target], limits=False)
        self.n_samples_seen_ = 0

    def _passes(self, X: np.ndarray) -> int:
        """How often `fit` goes through these rows."""
        return (FEW_ROWS_PASSES if len(X) <= FEW_ROWS else 1) if isinstance(self.n_iter, str) else int(self.n_iter)

    def _fit(self, X: np.ndarray, targets: np.ndarray, sample_weight: Any) -> Any:
        """Learn a whole table, scaled by all of its rows."""
        self._learn(X, targets, sample_weight, passes=self._passes(X), whole_table=True)
        return self

    def _learn(
        self, X: np.ndarray, targets: np.ndarray, sample_weight: Any, *, passes: int = 1, whole_table: bool = False
    ) -> list[TargetPrediction]:
        """Learn these rows in order, those of a whole table in a random one; a row of weight 0 is left out.

        Returns what was predicted for them in each pass, before each was learned.

        Of several passes each counts for its share, so that every row counts once in all: a later pass linearises
        better without becoming more certain. Rows that are sorted by their target would be linearised at estimates that
        never saw one of the others, so each pass through a table without a time has an order of its own.
        """
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            counted = sample_weight > 0
            X, targets, sample_weight = X[counted], targets[counted], sample_weight[counted]
        if passes > 1:
            sample_weight = (np.ones(len(X)) if sample_weight is None else sample_weight) / passes
        if whole_table and len(X):
            self._table.know_scales(self._table.rows(X, targets[:, None], tell_past=False))
        timeless = whole_table and not self._table.past_columns and not self._table.options.has_memory
        rng = np.random.default_rng(self._table.options.seed)
        told = []
        for _ in range(passes if len(X) else 0):
            order = rng.permutation(len(X)) if timeless else np.arange(len(X))
            weight = None if sample_weight is None else sample_weight[order]
            told.append(self._table.learn(self._table.rows(X[order], targets[order, None], weight)).wait().targets[0])
        self.n_samples_seen_ += len(X)
        self.n_iter_ = passes
        return told

    @property
    def _is_new(self) -> bool:
        return not hasattr(self, "_table")

    # -- predictions ---------------------------------------------------------------------------------------------------

    def _outcome(self, X: Any, level: float | None = None) -> TargetPrediction:
        """What is predicted for each row."""
        check_is_fitted(self, "_table")
        return self._table.predict_rows(self._table.rows(self._rows(X, reset=False)), level)

    def _coefficients(self) -> Coefficients:
        check_is_fitted(self, "_table")
        if self._frame_columns is not None:
            raise AttributeError(
                "coef_: the frame has columns that are not numbers, which have several weights each; "
                'encode them first, for instance with OneHotEncoder(drop="first"), to have one for each'
            )
        found = coefficients(self._table)
        if found is None:
            raise AttributeError('coef_: only a linear model of one filter has it: model="linear", learner="single"')
        return found

    _target_is_numeric = True

    def __sklearn_tags__(self) -> Any:
        """Missing values may be NaN."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _refuse_words(X: Any) -> None:
    """An array with words in it lost the names and types of its columns on the way."""
    if isinstance(X, np.ndarray) and X.dtype == object:
        try:
            X.astype(np.float64)
        except ValueError as error:
            raise ValueError(
                f"X: {error}, and the types of an array's columns are not known; pass the frame itself, and after a "
                'transformer call its .set_output(transform="pandas")'
            ) from error

"""The law of a fitted model's errors; a fixed share of experts, and around it a Bayes mixture of two with the first.

On the host, in NumPy: for models that are no functions of JAX.
"""

import math

import numpy as np

from natkal.banks.auto import SHARE


class OuterMixture:
    """Weights of experts from the log probabilities they gave; the first expert is the one never to be worse than.

    `log_weights` are those of the inner mixture, `odds` the log odds of that mixture over the first expert alone. With
    p = (1 - q) p_inner + q p_first, where q = 1 / (1 + exp(odds)), the loss of the whole is never more than ln 2 above
    that of the first expert.
    """

    def __init__(self, experts: int):
        self.log_weights = np.full(experts, -np.log(experts))
        self.odds = 0.0

    @property
    def weights(self) -> np.ndarray:
        """The weight of each expert in the whole."""
        inner = np.exp(self.log_weights)
        alone = 1 / (1 + np.exp(np.clip(self.odds, -700.0, 700.0)))
        whole = (1 - alone) * inner / inner.sum()
        whole[0] += alone
        return whole

    def learn(self, log_probs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows (n, experts) in order: the weights before each row (n, experts), and the log probability of each."""
        before, told = np.empty(log_probs.shape), np.empty(len(log_probs))
        for row, each in enumerate(log_probs):
            before[row] = self.weights
            joint = self.log_weights + each
            inner = np.logaddexp.reduce(joint)
            told[row] = np.logaddexp(inner - np.logaddexp(0.0, -self.odds), each[0] - np.logaddexp(0.0, self.odds))
            if np.isfinite(inner):
                self.log_weights = np.log((1 - SHARE) * np.exp(joint - inner) + SHARE / len(each))
            if np.isfinite(inner) or np.isfinite(each[0]):
                self.odds += np.clip(inner - each[0], -1e300, 1e300)
        return before, told


class ErrorLaw:
    """Student's t of the errors of a model: n degrees of freedom after n - 3 errors, its scale their root mean square.

    Before the first error the scale is the spread of the model's answers.
    """

    def __init__(self, answers: np.ndarray):
        spread = float(np.std(answers)) or float(np.abs(answers).max(initial=0.0)) or 1.0
        self.count, self.squares = 3.0, 3.0 * spread**2

    @property
    def deviation(self) -> float:
        """The scale of the next error."""
        return math.sqrt(self.squares / self.count)

    def learn(self, errors: np.ndarray) -> np.ndarray:
        """The log density of each error before it was learned."""
        told = np.empty(len(errors))
        for row, error in enumerate(errors.tolist()):
            n, scale = self.count, self.deviation
            constant = math.lgamma((n + 1) / 2) - math.lgamma(n / 2) - 0.5 * math.log(n * math.pi) - math.log(scale)
            told[row] = constant - (n + 1) / 2 * math.log1p((error / scale) ** 2 / n)
            self.count, self.squares = n + 1, self.squares + error**2
        return told

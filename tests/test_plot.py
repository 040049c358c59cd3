"""Pictures: what is drawn is what was told."""

from types import SimpleNamespace

import numpy as np
import pytest

from natkal import plot

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

RNG = np.random.default_rng(0)


class Numbers:
    """A prediction of standard normal numbers."""

    mean = np.zeros((400, 1))

    def interval(self, level):
        half = {0.9: 1.645}[level]
        return np.full((400, 1), -half), np.full((400, 1), half)

    def quantile(self, q):
        return np.full((400, 1), q)

    @property
    def probabilities(self):
        raise ValueError("no classes")

    def cdf(self, y):
        return np.clip((np.asarray(y) + 3) / 6, 0, 1)


@pytest.fixture(autouse=True)
def _close():
    yield
    matplotlib.pyplot.close("all")


def test_loss_keeps_the_mean():
    values = RNG.normal(size=640)
    drawn = plot.loss(SimpleNamespace(log_prob=-values)).lines[0]
    np.testing.assert_allclose(np.mean(drawn.get_ydata()), values.mean())
    assert drawn.get_xdata()[-1] == 640


def test_calibration_of_numbers_and_of_classes():
    heights = [bar.get_height() for bar in plot.calibration(Numbers(), RNG.uniform(-3, 3, size=400)).patches]
    np.testing.assert_allclose(sum(heights), 1.0)
    given = RNG.uniform(size=5000)
    told = SimpleNamespace(probabilities=np.stack([1 - given, given], axis=1))
    points = plot.calibration(told, (RNG.uniform(size=5000) < given).astype(int)).collections[0].get_offsets()
    np.testing.assert_allclose(points[:, 0], points[:, 1], atol=0.08)  # on the diagonal


def test_bands_weights_and_fan():
    ax = plot.bands(Numbers(), np.zeros(400))
    assert ax.collections[0].get_paths()[0].vertices[:, 1].max() == 1.645
    shares = RNG.dirichlet(np.ones(3), size=50)
    told = SimpleNamespace(prediction=SimpleNamespace(weights=shares[:, :, None]))
    assert len(plot.weights(told).collections) == 3
    rows = [{"step": step, **{f"q{q:02d}": q / 100 + step for q in range(5, 100, 5)}} for step in (1, 2, 3)]
    median = plot.fan(rows, observed=[0.0, 1.0]).lines[-1]
    np.testing.assert_allclose(median.get_ydata(), [1.5, 2.5, 3.5])
    assert len(plot.fan(Numbers()).collections) == 3
    with pytest.raises(ValueError, match="no column 'q50'"):
        plot.fan([{"step": 1, "p(a)": 1.0}])

"""What the questions rest on: intervals, pairing, and the schedules they compare."""

import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.questions import PARTS, QUESTIONS, tables
from benchmarks.questions.averaging import averaged_filter, averaged_sgd, best_of
from benchmarks.questions.cases import Case
from benchmarks.questions.measure import Job, Part, ask, interval, learner_scan
from benchmarks.questions.rates import SCHEDULES, keep_of, scaled_prior

import natkal as nk
from natkal.paper.dictionary import fading_from_learning_rate


@pytest.fixture(scope="module")
def case() -> Case:
    """Two seeds of a logistic regression."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(2, 40, 2))
    targets = (inputs[:, :, 0] + rng.normal(size=(2, 40)) > 0).astype(int)
    return Case("made up", "linear", jnp.asarray(inputs), jnp.asarray(targets), (2, 1), nk.families.Bernoulli())


@pytest.mark.slow
def test_every_setting_is_what_the_library_does_alone(case, rtol) -> None:
    """A vmapped setting against `nk.run`; differences are paired by seed."""

    def build(case, s, params):
        return nk.online(case.model_of(params), prior_cov=scaled_prior(params, s["scale"]))

    settings = {"narrow": {"scale": 0.1}, "wide": {"scale": 2.0}}
    found = ask([Job(case, "dense", [Part(settings, learner_scan(build, case))])], lambda label: "narrow", print)
    losses = {}
    for name, setting in settings.items():
        losses[name] = []
        for seed in range(2):
            params = case.params(jnp.asarray(seed))
            learner = build(case, setting, params)
            _, info = nk.run(learner, learner.init(params), case.inputs[seed], case.targets[seed])
            losses[name].append(-float(info.log_prob.mean()))
    gaps = np.subtract(losses["wide"], losses["narrow"])
    narrow, wide = found["rows"]
    np.testing.assert_allclose(
        [narrow["log_loss"], wide["log_loss"]], [np.mean(losses[n]) for n in settings], rtol=1e-5
    )
    np.testing.assert_allclose(wide["difference"], gaps.mean(), rtol=1e-3)
    np.testing.assert_allclose([wide["low"], wide["high"]], interval(gaps), rtol=1e-2)
    assert narrow["difference"] == 0
    assert found["summary"][1]["cases"] == 1


@pytest.mark.slow
def test_schedules_are_those_of_the_dictionary() -> None:
    """keep = 1 - lambda, with lambda from the paper's own Prop. 3."""
    steps = np.arange(0.0, 30.0)
    for label, rates in (("2/(t+2)", 2 / (steps + 2)), ("(t+1)^-0.7", (steps + 1) ** -0.7)):
        setting = {name: jnp.asarray(value) for name, value in SCHEDULES[label].items()}
        keep = jnp.stack([keep_of(setting, jnp.asarray(t)) for t in steps[1:]])
        np.testing.assert_allclose(1 - keep, fading_from_learning_rate(jnp.asarray(rates)), rtol=1e-4, atol=1e-5)
    never = {name: jnp.asarray(value) for name, value in SCHEDULES["1/(t+1)"].items()}
    np.testing.assert_allclose(keep_of(never, jnp.asarray(7.0)), 1.0, rtol=1e-6)


@pytest.mark.slow
def test_averages(case) -> None:
    """Without averaging the average is not used; a filter that forgets nothing is averaged like any other."""
    params = case.params(jnp.asarray(0))
    setting = {"rate": jnp.asarray(0.1), "exponent": jnp.asarray(0.0), "power": jnp.asarray(0.0)}
    scan = averaged_sgd(case)
    plain, mean = (
        scan({**setting, "averaged": jnp.asarray(flag)}, params, case.inputs[0], case.targets[0]) for flag in (0.0, 1.0)
    )
    np.testing.assert_allclose(plain[:2], mean[:2], rtol=1e-5)  # the mean of one point is that point
    assert not np.allclose(plain[5:], mean[5:])
    said = averaged_filter(case, nk.dense)({"fading": jnp.asarray(1e-3)}, params, case.inputs[0], case.targets[0])
    np.testing.assert_allclose(said[0], plain[0], rtol=1e-5)


def test_tables_and_best() -> None:
    row = {"stream": "s", "model": "m", "group": "g", "difference": 0.0, "low": 0.0, "high": 0.0}
    rows = [{**row, "setting": f"SGD, rate {rate}", "log_loss": rate} for rate in (2.0, 1.0, 3.0)]
    [best] = best_of(rows)
    assert (best["setting"], best["method"]) == ("SGD, rate 1.0", "SGD")
    [(title, shown, columns)] = tables({"averaging": {"rows": rows, "best": [best]}})
    assert title == QUESTIONS["averaging"]
    assert set(columns) <= set(shown[0])
    assert set(QUESTIONS) == set(PARTS)

"""Every wrong argument: a `ValueError` that names it, and a state that has not changed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk

model = nk.static_model(lambda w, u: w @ u, jnp.zeros((3, 2)), nk.families.Categorical(3))
wide = nk.static_model(lambda w, u: w @ u, jnp.zeros((5, 2)), nk.families.Categorical(3))
scalar = nk.static_model(lambda w, u: w @ u, jnp.zeros(2), nk.families.Poisson())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nk.fading(1.0), r"fading: must lie in \[0, 1\), got 1.0"),
        (lambda: nk.fading(-0.1), "fading"),
        (lambda: nk.fading(lambda t: 2.0 / t), "fading.* at step 1"),
        (lambda: nk.learning_rate(0.0), r"learning_rate: must lie in \(0, 1\], got 0.0"),
        (lambda: nk.learning_rate(1.5), "learning_rate"),
        (lambda: nk.learning_rate(0.1, fisher_decay=-1.0), "fisher_decay"),
        (lambda: nk.sampled(0), "draws"),
        (lambda: nk.dense(prior_directions=0), "prior_directions"),
        (lambda: nk.online(model, prior_cov=-1.0), "prior_cov: every variance must be positive, got -1.0"),
        (lambda: nk.online(model, prior_cov=np.nan), "prior_cov: .*not finite"),
        (lambda: nk.online(model, prior_cov=np.ones(5)), r"prior_cov: shape \(5,\)"),
        (lambda: nk.online(model, prior_cov=np.ones((6, 6))), "prior_cov: .*not positive definite"),
        (lambda: nk.online(model, prior_cov=np.triu(np.ones((6, 6)))), "prior_cov: .*not symmetric"),
        (lambda: nk.online(model, prior_cov={"w": 1.0}), "prior_cov: its structure"),
        (lambda: nk.online(model, prior_weight=0.0), "prior_weight: must be positive"),
        (lambda: nk.online(model, prior_weight=1.0, rates=nk.learning_rate(0.1, 0.2)), "prior_weight: Prop. 4"),
        (lambda: nk.online(model, prior_cov=None).init(jnp.zeros((3, 2))), "prior_cov: dense"),
        (lambda: nk.static_model(lambda w, u: w, jnp.zeros(2, int), nk.families.Poisson()), "params: .*floating"),
        (lambda: nk.static_model(lambda w, u: w, [], nk.families.Poisson()), "params: .*no leaves"),
        (lambda: nk.online(model).init(jnp.zeros((2, 3))), r"params: .*\(2, 3\), .*\(3, 2\)"),
        (lambda: nk.online(model).init(jnp.full((3, 2), np.inf)), "params: .*not finite"),
    ],
)
def test_building(build, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("used", "inputs", "targets", "message"),
    [
        (model, np.ones((4, 2)), np.array([0, 1, 7, 2]), r"target 7 .*3 classes.*row 2"),
        (model, np.ones((4, 2)), np.array([0, 1, -1, 2]), r"target -1 .*row 2"),
        (model, np.ones((3, 2)), np.array([0, 1]), r"inputs: shape \(3, 2\).*2 targets"),
        (model, np.array([[1, 2], [np.inf, 0]]), np.array([0, 1]), r"inputs: inf is not a finite number \(row 1\)"),
        (model, np.ones((2, 2)), np.array([[0], [1]]), "targets: "),
        (scalar, np.ones((2, 2)), np.array([1, -3]), r"target -3 .*row 1"),
        (scalar, np.ones((2, 2)), np.array([1.5, 3]), r"target 1.5 .*row 0"),
        (model, np.ones((2, 5)), np.array([0, 1]), r"inputs: .*row of shape \(5,\)"),
        (wide, np.ones((2, 2)), np.array([0, 1]), r"apply: gives 5 numbers .*Categorical\(k=3"),
    ],
)
def test_running(used, inputs, targets, message: str) -> None:
    learner = nk.online(used)
    state = learner.init(used.params)
    with pytest.raises(ValueError, match=message):
        nk.run(learner, state, inputs, targets)


def test_an_unknown_output_is_refused_by_the_type_checker_or_by_hand() -> None:
    with pytest.raises((ValueError, TypeError), match="output"):
        nk.static_model(lambda w, u: w, jnp.zeros(2), nk.families.Poisson(), output="raw")  # pyright: ignore


def test_hyperparameters_may_be_traced() -> None:
    """A bank of learners builds them inside `vmap`: no check may touch a traced value."""

    def final(prior_cov, amount, noise):
        model = nk.static_model(lambda w, u: w @ u, jnp.zeros(2), nk.families.Gaussian(noise))
        learner = nk.online(model, prior_cov=prior_cov, rates=nk.fading(amount))
        return learner.step(learner.init(jnp.zeros(2)), jnp.ones(2), jnp.ones(()))[0].params

    out = jax.vmap(final)(jnp.array([1.0, 2.0]), jnp.array([0.0, 0.1]), jnp.array([1.0, 0.5]))
    assert out.shape == (2, 2)


@pytest.mark.parametrize(
    ("u", "y", "message"),
    [
        (np.ones(2), 7, "target 7 "),
        (np.ones(2), np.array([1]), "targets: "),
        (np.array([1.0, np.nan]), 1, "inputs: nan is not a finite number"),
        (np.ones(3), 1, r"inputs: .*shape \(3,\)"),
    ],
)
def test_one_call_per_observation(u, y, message: str) -> None:
    learner = nk.online(model)
    service = nk.live(learner, learner.init(model.params))
    with pytest.raises(ValueError, match=message):
        service.step(u, y)
    assert int(service.state.steps) == 0

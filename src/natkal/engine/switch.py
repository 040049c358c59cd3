"""From one curvature to another in mid-stream: for instance from a diffuse start to a cheaper form."""

from natkal.curvature import Prior
from natkal.engine.learner import KalmanLearner
from natkal.engine.prior import make_prior
from natkal.engine.state import KalmanState


def switch(state: KalmanState, source: KalmanLearner, target: KalmanLearner) -> KalmanState:
    """The state of `source` as one of `target`: same parameters, same covariance, another curvature.

    The two learners must have the same parameters. The covariance goes over in full, so this is for small models or
    for the start: a learner with `nk.information()` and no prior, until every parameter has been observed, then a
    `nk.square_root()` one.
    """
    prior = make_prior(target.model, state.params, target.prior_cov, scale=1.0, kept=target.prior_weight is not None)
    carried = Prior(cov=source.covariance(state), kept=prior.kept, layout=prior.layout)
    centre = state.params if state.prior_params is None else state.prior_params
    return KalmanState(
        params=state.params,
        curvature=target.curvature.init(carried),
        carry=state.carry,
        steps=state.steps,
        outliers=state.outliers,
        key=state.key,
        prior_params=None if target.prior_weight is None else centre,
    )

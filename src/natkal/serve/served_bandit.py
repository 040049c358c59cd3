"""A run of `natkal decide` behind the writer: decisions for rows, rewards by id."""

import copy
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from natkal.errors import StreamError
from natkal.runs.decisions import DecisionSession
from natkal.runs.outputs import Output
from natkal.serve.requests import DECIDE, REWARD, Request, check_names
from natkal.serve.rows import Refused, read_id
from natkal.serve.served import Log
from natkal.settings.serve import Limits
from natkal.tables.schema.infer import Schema

ANY = ["string", "number", "boolean", "null"]


class Asked(NamedTuple):
    """A request whose rows can be used: for decisions contexts and the arms of each, for rewards the values."""

    request: Request
    ids: list[str]
    contexts: np.ndarray
    arms: list[list[str] | None]
    rewards: list[Any]


class ServedBandit:
    """Decides and learns; requests of one kind that wait together go through one compiled call."""

    kinds = frozenset({DECIDE, REWARD})
    refusal = "this run is a bandit: it takes /decide and /reward"

    def __init__(self, session: DecisionSession, limits: Limits):
        self.session, self.limits = session, limits
        self.given_up = 0
        self._figures = threading.Lock()

    # -- readers -------------------------------------------------------------------------------------------------------

    def predict(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Refused: a decision is asked for by /decide."""
        raise Refused(409, self.refusal)

    @property
    def schema(self) -> Schema:
        """Refused: a bandit has no targets."""
        raise Refused(409, self.refusal)

    def facts(self) -> dict[str, Any]:
        """Decisions, rewards and what simple policies would have earned."""
        session = self.session
        with self._figures:
            found = session.summary()
            series = session.own.series()
            learner = None if session.bandit is None else session.bandit.learner
            weights = {} if learner is None else learner.weights()
        found["rows"] = {**found["rows"], "learned": self.learned}
        features = [] if session.bandit is None else session.bandit.encoder.schema.features
        return {
            **found,
            "targets": [],
            "features": [feature.name for feature in features],
            "parameters": 0 if learner is None else learner.parameters,
            "keys": 0,
            "model": session.settings.model,
            "policy": session.settings.policy,
            "members": weights,
            "effective_memory": None,
            "series": series,
            "alarms": [],
        }

    @property
    def id_column(self) -> str:
        """The key of a decision's id."""
        return self.session.settings.id

    @property
    def waiting_ids(self) -> int:
        """Decisions that wait for their reward."""
        return len(self._held())

    @property
    def learned(self) -> int:
        """Rewards learned since the run began, those of a log among them."""
        return self.session.counts.rewarded + self.session.counts.logged

    @property
    def outputs(self) -> Sequence[Output]:
        """None: decisions are in the answers and in the log."""
        return ()

    def row_properties(self) -> dict[str, Any]:
        """Features, the id, the arms to choose from, the reward."""
        bandit = self.session.bandit
        features = () if bandit is None else bandit.encoder.schema.features
        return {feature.name: {"type": ANY} for feature in features} | {
            self.id_column: {"type": ["string", "integer"]},
            self._arms_column: {"type": "array", "items": {"type": "string"}},
            self.session.settings.reward: {"type": ["number", "null"]},
        }

    # -- the writer ----------------------------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Compile decisions and rewards, where the columns are known."""
        if self.session.bandit is not None and self.session.bandit.learner is not None:
            self.session.bandit.learner.warm_up()

    def snapshot(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The session's checkpoint; its header is written while the next requests are used, so it is a copy."""
        header, arrays = self.session.snapshot()
        return copy.deepcopy(header), arrays

    def run(self, requests: list[Request], log: Log) -> None:
        """Decide and learn in order; neighbours of one kind together, with the result of one after the other."""
        waiting: list[Asked] = []
        for request in requests:
            if waiting and waiting[0].request.kind != request.kind:
                self._use(waiting)
                waiting = []
            try:
                waiting.append(self._read(request, waiting))
            except Refused as refused:
                request.refused = refused
        if waiting:
            self._use(waiting)
        log([request for request in requests if request.refused is None])

    def _read(self, request: Request, waiting: list[Asked]) -> Asked:
        """What a request asks; refused whole where a row cannot be used."""
        return self._contexts(request, waiting) if request.kind == DECIDE else self._rewards(request, waiting)

    def _contexts(self, request: Request, waiting: list[Asked]) -> Asked:
        session, name = self.session, self.id_column
        first = session.counts.decided + sum(len(asked.ids) for asked in waiting) + 1
        numbered = enumerate(request.rows, first)
        ids = [read_id(row[name]) if name in row else f"decision {number}" for number, row in numbered]
        if len(set(ids)) < len(ids):
            raise Refused(422, "the same id stands twice in one request")
        try:
            bandit = session.made([(number, row) for number, row in enumerate(request.rows, 1)])
        except StreamError as error:
            raise Refused(422, str(error)) from error
        arms_name = self._arms_column
        arms = [_arms_of(row.get(arms_name), number) for number, row in enumerate(request.rows, 1)]
        for number, own in enumerate(arms, 1):
            for arm in own or ():
                _told(number, lambda arm=arm: bandit.check_arm(arm))
        rows = [{key: cell for key, cell in row.items() if key not in (name, arms_name)} for row in request.rows]
        known = {feature.name for feature in bandit.encoder.schema.features}
        if bandit.learner is None:  # the first request decides which columns there are
            known = {key for row in rows for key in row} - session.reserved
        check_names(rows, known, known | set(session.settings.ignore))
        contexts, rejects = bandit.encode([session.features(row) for row in rows])
        if rejects:
            raise Refused(422, f"row {rejects[0].line:,}: {rejects[0].reason}")
        return Asked(request, ids, contexts, arms, [])

    def _rewards(self, request: Request, waiting: list[Asked]) -> Asked:
        settings, held = self.session.settings, self._held()
        check_names(request.rows, (settings.id, settings.reward), {settings.id, settings.reward})
        taken = {name for asked in waiting for name in asked.ids}
        ids, rewards = [], []
        for number, row in enumerate(request.rows, 1):
            if settings.id not in row:
                raise Refused(422, f"row {number:,}: column {settings.id!r}: a reward needs the id of its decision")
            if settings.reward not in row:
                raise Refused(422, f"row {number:,}: has no {settings.reward}; null says that it will never be known")
            name, reward = read_id(row[settings.id]), row[settings.reward]
            if name not in held or name in taken:
                raise Refused(404, f"row {number:,}: id {name!r:.60}: no decision with this id waits for a reward")
            _told(number, lambda reward=reward: self._value(reward))
            taken.add(name)
            ids.append(name)
            rewards.append(reward)
        return Asked(request, ids, np.zeros((0, 0)), [], rewards)

    def _use(self, waiting: list[Asked]) -> None:
        """Decide or learn what some requests of one kind ask, and answer them."""
        ids = [name for asked in waiting for name in asked.ids]
        with self._figures:
            self.session.counts.read += len(ids)
            if waiting[0].request.kind == REWARD:
                rewards = [reward for asked in waiting for reward in asked.rewards]
                self.session.reward(list(zip(ids, rewards, strict=True)))
                for asked in waiting:
                    asked.request.answer = {"learned": len(asked.ids), "rows": self.learned}
                return
            arms = [own for asked in waiting for own in asked.arms]
            contexts = np.concatenate([asked.contexts for asked in waiting])
            decisions = self.session.decide(contexts, ids, arms if any(own is not None for own in arms) else None)
            while len(self._held()) > self.limits.ids:
                self._held().popitem(last=False)
                self.given_up += 1
        first = 0
        for asked in waiting:
            own = decisions[first : first + len(asked.ids)]
            asked.request.answer = own[0] if asked.request.single else {"decisions": own}
            first += len(asked.ids)

    def _value(self, reward: Any) -> float:
        assert self.session.bandit is not None
        return self.session.bandit.value(reward)

    def _held(self) -> Any:
        bandit = self.session.bandit
        return {} if bandit is None or bandit.learner is None else bandit.learner.held

    @property
    def _arms_column(self) -> str:
        """The key of the arms that a row may have; another one where a column has that name."""
        bandit = self.session.bandit
        features = () if bandit is None else bandit.encoder.schema.features
        return "_arms" if any(feature.name == "arms" for feature in features) else "arms"


def _arms_of(given: Any, number: int) -> list[str] | None:
    """The arms that a row may have; None for all."""
    if given is None:
        return None
    if not isinstance(given, list) or not given or not all(isinstance(name, str) for name in given):
        raise Refused(422, f"row {number:,}: arms: a list of names is needed")
    return given


def _told(number: int, check: Any) -> None:
    """Run a check of the session; what it refuses is refused with the row's number."""
    try:
        check()
    except StreamError as error:
        raise Refused(422, f"row {number:,}: {error}") from error

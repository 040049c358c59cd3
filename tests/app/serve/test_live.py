"""The page of `natkal learn --live` shows the run's own numbers."""

import asyncio
import json

from natkal.serve.live import LivePage
from tests.app import support


def test_the_weights_are_those_of_the_last_row(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text(support.csv_text(support.table(80)))
    session = support.learn(tmp_path / "run", path, learner="auto", budget="fast")
    live = LivePage()
    live.tell(session, finished=True)
    facts = json.loads(asyncio.run(live.facts()))
    *weights, memory = session.metrics.recent[-1, -len(session.metrics.members) :]
    names = [name.removeprefix("weight ") for name in session.learner.member_names[:-1]]
    assert facts["members"] == dict(zip(names, weights, strict=True))
    assert facts["effective_memory"] == memory

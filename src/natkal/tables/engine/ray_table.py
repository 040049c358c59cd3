"""`natkal learn --key COLUMN --ray ADDRESS`: the models of a table's keys on actors of Ray."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from natkal.errors import StreamError
from natkal.keyed.ray_workers import RayWorkers, check_address, connect
from natkal.tables.engine.spread_table import SpreadTable, TableShard
from natkal.tables.table import TableLearner


@contextmanager
def on_ray(learner: TableLearner, address: str | None) -> Iterator[None]:
    """The learner's models on as many actors as the cluster has CPUs; here where `address` is None."""
    if address is None:
        yield
        return
    with _explained(address):
        ray = connect(address, "--ray")
    started = address == "local"

    def make(worker: int) -> Any:
        return TableShard()

    count = max(int(ray.cluster_resources().get("CPU", 1)), 1)
    spread = SpreadTable(learner, RayWorkers(ray, make), count)
    learner.elsewhere = spread
    try:
        yield
        spread.close()
    finally:
        learner.elsewhere = None
        if started:
            ray.shutdown()


def check_ray(address: str | None, key: str | None, label_delay: int) -> None:
    """Refuse what cannot be spread over workers."""
    if address is None:
        return
    if key is None:
        raise StreamError("--ray: is for a model for each key; name the column with --key")
    if label_delay:
        raise StreamError("--ray: labels that come later by --label-delay are learned in one process; leave one out")
    with _explained(address):
        check_address(address, "--ray")


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """What is wrong with the cluster, in the words of the option."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise StreamError(str(error)) from error
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise StreamError(f"--ray {address}: {error}") from error

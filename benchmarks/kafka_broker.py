"""The mock broker of librdkafka in a process of its own, so that the benchmark itself can fork."""

import json
import subprocess
import sys
from typing import Any

import numpy as np


def rows_of(first: int, last: int, seed: int = 0) -> list[str]:
    """Rows `first` to `last` of an endless table: three numbers of two digits, and a target that depends on them."""
    found = []
    for block in range(first // 1000, (last + 999) // 1000):
        rng = np.random.default_rng([seed, block])
        inputs = rng.normal(size=(1000, 3)).round(2)
        targets = (inputs @ [1.0, -2.0, 0.5] + rng.normal(size=1000)).round(2)
        found += [f'{{"a":{a},"b":{b},"c":{c},"y":{y}}}' for (a, b, c), y in zip(inputs, targets, strict=True)]
    return found[first - first // 1000 * 1000 :][: last - first]


def serve(topics: dict[str, int]) -> None:
    """Say the address; then write the rows that each line of standard input asks for, until it ends."""
    from tests.app.mock_kafka import MockKafka

    broker = MockKafka(topics)
    print(json.dumps(broker.address), flush=True)
    for line in sys.stdin:
        topic, first, last = json.loads(line)
        shift, partitions = first, topics[topic]
        broker.send(topic, rows_of(first, last), lambda row, shift=shift, count=partitions: (shift + row) % count)
        print(json.dumps("sent"), flush=True)


class BrokerProcess:
    """A broker with these topics, and numbers of partitions; rows are spread over the partitions in turn."""

    def __init__(self, topics: dict[str, int]):
        command = [sys.executable, "-m", "benchmarks.kafka_broker", json.dumps(topics)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self.address = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def send(self, topic: str, first: int, last: int) -> None:
        """Write rows of the endless table."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([topic, first, last]) + "\n")
        self._process.stdin.flush()
        assert self._answer() == "sent"

    def __enter__(self) -> "BrokerProcess":
        return self

    def __exit__(self, *error: Any) -> None:
        with self._process:
            self._process.kill()


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))

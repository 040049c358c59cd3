"""Counts and latencies of requests, for the page and for Prometheus. Event loop only; memory does not grow."""

import bisect
import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

BOUNDS = (1e-4, 2e-4, 4e-4, 6e-4, 8e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Upper bounds of the latency buckets, in seconds."""
SECONDS = 10
"""Rates are means over so many seconds."""
KINDS_OF_REFUSAL = 50
LAST_REFUSALS = 20
QUOTED = re.compile(r"'[^']*'?|\b[0-9][0-9,]*\b")
"""What differs between reasons of the same kind."""
RECENT_LATENCIES = 2000


class Traffic:
    """What came in and what became of it."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, int], int] = {}
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.total_seconds = 0.0
        self.rows = 0
        self.refusals: dict[str, int] = {}
        self.last_refusals: deque[dict[str, Any]] = deque(maxlen=LAST_REFUSALS)
        self._latencies: deque[float] = deque(maxlen=RECENT_LATENCIES)
        self._ticks: deque[tuple[float, int, int]] = deque([(time.monotonic(), 0, 0)], maxlen=4 * SECONDS)
        self._count = 0
        self.last_request: float | None = None

    def note(self, route: str, status: int, seconds: float, rows: int = 0) -> None:
        """One request is answered. `route` is one of the application's, so there are few of them."""
        key = (route, status)
        self.requests[key] = self.requests.get(key, 0) + 1
        if rows:
            self._count += 1
            self.rows += rows
            self.buckets[bisect.bisect_left(BOUNDS, seconds)] += 1
            self.total_seconds += seconds
            self._latencies.append(seconds)
            self.last_request = time.time()

    def refuse(self, reason: str, status: int) -> None:
        """A request was refused, and why. Reasons are counted by what they have in common."""
        kind = reason.partition(": ")[2] if reason.startswith("row ") else reason
        kind = kind.partition(":")[0] if kind.startswith("column") else QUOTED.sub("...", kind)
        kind = kind.partition(";")[0][:80]
        if kind not in self.refusals and len(self.refusals) >= KINDS_OF_REFUSAL:
            kind = "other reasons"
        self.refusals[kind] = self.refusals.get(kind, 0) + 1
        self.last_refusals.append({"time": time.time(), "status": status, "reason": reason[:300]})

    def facts(self) -> dict[str, Any]:
        """For `/state` and the page; latencies are those of the last requests with rows."""
        now = time.monotonic()
        if now - self._ticks[-1][0] >= 0.5:
            self._ticks.append((now, self._count, self.rows))
        then = next((tick for tick in self._ticks if now - tick[0] <= SECONDS), self._ticks[-1])
        span = max(now - then[0], 1e-3)
        ordered = sorted(self._latencies)
        quantile = lambda q: 1e3 * ordered[min(int(q * len(ordered)), len(ordered) - 1)] if ordered else None  # noqa: E731
        return {
            "requests": sum(self.requests.values()),
            "requests_per_second": (self._count - then[1]) / span,
            "rows_per_second": (self.rows - then[2]) / span,
            "latency_ms": {"p50": quantile(0.5), "p99": quantile(0.99)},
            "refused": sum(self.refusals.values()),
            "refusals": dict(sorted(self.refusals.items(), key=lambda entry: -entry[1])),
            "last_refusals": list(self.last_refusals),
            "last_request": self.last_request,
        }


def memory_bytes() -> int:
    """The memory of this process: what is resident now; the most there was on macOS, 0 on Windows."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        if sys.platform == "win32":
            return 0
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def prometheus(traffic: Traffic, gauges: dict[str, tuple[str, float]], counters: dict[str, tuple[str, float]]) -> bytes:
    """The text of `/metrics`."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector

    class Figures(Collector):
        def collect(self) -> Iterable[Any]:
            return families()

    def families() -> Iterator[Any]:
        requests = CounterMetricFamily("natkal_requests", "Requests answered.", labels=["route", "status"])
        for (route, status), count in traffic.requests.items():
            requests.add_metric([route, str(status)], count)
        yield requests
        latency = HistogramMetricFamily("natkal_request_seconds", "Seconds from a request with rows to its answer.")
        total, cumulated = 0, []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), traffic.buckets, strict=True):
            total += count
            cumulated.append((bound, total))
        latency.add_metric([], cumulated, traffic.total_seconds)
        yield latency
        for name, (words, value) in gauges.items():
            yield GaugeMetricFamily(name, words, value)
        for name, (words, value) in counters.items():
            yield CounterMetricFamily(name, words, value)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures())
    return generate_latest(registry)

"""`natkal learn kafka://... --partition-models`: one model for each partition that the group gives to this process."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from natkal.cli.terminal import err, out, print_json
from natkal.runs.stopping import stop_on_signals

if TYPE_CHECKING:
    from natkal.runs.partitions import PartitionRun
    from natkal.settings.settings import Settings

NOTE_SECONDS = 5.0
"""Seconds between two lines of progress."""


def learn_partitions(
    run: Path,
    settings: "Settings",
    data: list[str],
    *,
    until_end: bool,
    rows: int | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Learn until all partitions are at their end, or until a signal comes."""
    from natkal.errors import StreamError
    from natkal.reading.kafka.address import is_kafka
    from natkal.reading.open_source import check_data
    from natkal.runs import checkpoint
    from natkal.runs.runtime import command

    if not data or not settings.targets:
        raise StreamError("--partition-models: give kafka://BROKER/TOPIC and --target, the same for every process")
    check_data(data, settings, until_end=until_end)
    if not is_kafka(data[0]):
        raise StreamError("--partition-models: is for a topic, kafka://BROKER/TOPIC")
    if checkpoint.exists(run):
        raise StreamError(f"{run}: holds a run with one model; --run names another folder")
    with command():
        from natkal.runs.partitions import PartitionRun

        def tell(words: str) -> None:
            if not as_json:
                err.print(words, soft_wrap=True, markup=False)

        started, noted = time.perf_counter(), time.monotonic()
        with stop_on_signals(lambda number: "stopped in the middle of a block; the same command goes on") as stopped:
            member = PartitionRun(run, settings, data[0], until_end=until_end, tell=tell)

            def report(member: "PartitionRun") -> None:
                nonlocal noted
                if time.monotonic() - noted >= NOTE_SECONDS:
                    noted = time.monotonic()
                    tell(f"{member.counts.read:,} rows, {len(member.sessions)} partitions")

            done = member.run(
                checkpoint_rows=rows,
                checkpoint_seconds=seconds,
                stop=lambda: stopped() is not None,
                report=report,
            )
        result = _result(member, data, time.perf_counter() - started, done)
        print_json(result) if as_json else _print(result)
        if not done:
            err.print("stopped; the same command goes on")
            raise typer.Exit(128 + (stopped() or 15))


def _result(member: "PartitionRun", data: list[str], seconds: float, done: bool) -> dict[str, Any]:
    counts = member.counts
    return {
        "command": "learn",
        "data": data,
        "run": str(member.folder),
        "finished": done,
        "rows": vars(counts),
        "partitions": [
            {
                "partition": partition,
                "rows": vars(session.counts),
                "offsets": session.offsets,
                "targets": [part.summary() for part in session.metrics.parts],
            }
            for partition, session in sorted(member.results.items())
        ],
        "model": member.settings.model,
        "seconds": round(seconds, 3),
        "rows_per_second": round(counts.read / seconds, 1),
    }


def _print(result: dict[str, Any]) -> None:
    from natkal.settings.settings import Counts

    counted = Counts(**result["rows"]).accounting()
    out.print(f"{counted}   {result['seconds']:.1f} s, {result['rows_per_second']:,.0f} rows/s", soft_wrap=True)
    for one in result["partitions"]:
        figures = ", ".join(
            f"{part['target']}: {name.replace('_', ' ')} {part[name]:.4g}"
            for part in one["targets"]
            for name in ("log_loss", "accuracy", "mean_absolute_error")
            if isinstance(part.get(name), float)
        )
        out.print(f"partition {one['partition']}: {one['rows']['read']:,} rows in all; {figures}", soft_wrap=True)

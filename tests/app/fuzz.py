"""Random and mutated files, read from the first byte to the encoder: each is read or refused with a sentence.

    python -m tests.app.fuzz 2000 [--seed 0]

A file is a table of columns of many kinds, written as CSV, JSON lines, a JSON array, Parquet or Arrow, perhaps
compressed, with odd headers, cells and encodings; then its bytes are flipped, cut, doubled or replaced. Some
files are bytes alone.
"""

import argparse
import collections
import csv
import gzip
import io
import json
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from natkal.errors import StreamError
from natkal.reading.first_rows import look
from natkal.reading.source import Source
from natkal.settings.settings import Settings
from natkal.tables.encode.encoder import Encoder

SECONDS = 20
"""No file may take longer than this, on a busy machine too; the usual one takes milliseconds."""
FORMATS = ("csv", "csv", "csv", "tsv", "jsonl", "json", "parquet", "arrow", "csv.gz", "jsonl.gz", "csv.zst")
ODD_CELLS = (
    "", "NA", "nan", "inf", "-inf", "1e999", "-1e308", "1_000", "0x1F", "9" * 400, "1,5", "1.234,5", "$5", "12%", "(3)",
    "true", "no", "2024-05-17", "2024-05-17T08:30:00+02:00", "9999-99-99", '"', '""', "'", "a,b", "a;b", "line\nbreak",
    "\r", "\t", "\0", "é", "ß", "日本", "\u202e", "\ufeff", "\U0001f600", "{}", "[1, 2]", "=1+1", "-", "- 5", "٣",
    "#", "\\",
)  # fmt: skip
ODD_VALUES = (
    None, True, False, 0, -1, 2**53 + 1, 10**400, 1e308, -0.0, "", "x", "1,5", [], {}, [1, [2]], {"a": {"b": 1}},
    "\ud800",
)  # fmt: skip
ODD_NAMES = ("", " ", "a", "a", "y", "[/b]", "[red]", "column 1", "a:b", "-a", "naïve", '"', "\n", "é" * 50, "1", "a.b")


def column(rng: np.random.Generator, rows: int) -> list[str]:
    """Cells of one kind, as text."""
    kinds: list[Callable[[], Any]] = [
        lambda: f"{rng.normal():.6g}",
        lambda: str(rng.integers(-5, 50)),
        lambda: str(rng.integers(0, 2)),
        lambda: rng.choice(["red", "green", "blue"]),
        lambda: f"{rng.normal() * 1e4:,.2f}",
        lambda: f"{rng.normal():.3f}".replace(".", ","),
        lambda: f"2024-{rng.integers(1, 13):02d}-{rng.integers(1, 29):02d}",
        lambda: rng.choice(["yes", "no"]),
        lambda: "".join(map(chr, rng.integers(32, 0x2FF, rng.integers(0, 12)))),
        lambda: str(int(rng.integers(0, 2**62)) * 7),
        lambda: "",
    ]
    draw = kinds[rng.integers(len(kinds))]
    odd = rng.choice([0.0, 0.0, 0.02, 0.3])
    return [str(rng.choice(ODD_CELLS)) if rng.random() < odd else str(draw()) for _ in range(rows)]


def table(rng: np.random.Generator) -> dict[str, list[str]]:
    """A few columns, sometimes with odd names, and usually a `y`."""
    rows = int(rng.choice([0, 1, 3, 40, 40, 150, 150, 400]))
    names = [f"x{i}" for i in range(rng.integers(0, 6))] + ["y"] * (rng.random() < 0.9)
    if rng.random() < 0.3:
        names += [str(name) for name in rng.choice(ODD_NAMES, rng.integers(1, 4))]
    return {name: column(rng, rows) for name in names}


def as_csv(rng: np.random.Generator, content: dict[str, list[str]], delimiter: str) -> bytes:
    text = io.StringIO()
    quoting = csv.QUOTE_ALL if rng.random() < 0.2 else csv.QUOTE_MINIMAL
    end = str(rng.choice(["\n"] * 6 + ["\r\n"] * 3 + ["\r"]))
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=quoting)
    text.write(end * int(rng.choice([0, 0, 0, 3])))
    names = list(content)
    rows = [names, *map(list, zip(*content.values(), strict=True))]
    if rng.random() < 0.2 and len(rows) > 2:  # fields swapped, left out, or one too many
        for _ in range(rng.integers(1, 5)):
            row = rows[rng.integers(1, len(rows))]
            row.insert(int(rng.integers(len(row) + 1)), row.pop() if row and rng.random() < 0.5 else "extra")
    writer.writerows(rows)
    encoding = str(rng.choice(["utf-8"] * 25 + ["utf-8-sig", "cp1252", "utf-16", "utf-16-be", "cp1251"]))
    return text.getvalue().encode(encoding, "replace")


def as_json(rng: np.random.Generator, content: dict[str, list[str]], *, array: bool) -> bytes:
    records = []
    for row in zip(*content.values(), strict=True):
        record: dict[str, Any] = dict(zip(content, row, strict=True))
        for name in list(record):
            chance = rng.random()
            if chance < 0.1:
                record[name] = ODD_VALUES[rng.integers(len(ODD_VALUES))]
            elif chance < 0.2:
                del record[name]
            elif chance < 0.6:
                record[name] = _typed(record[name])
        if rng.random() < 0.02:
            record[f"new {rng.integers(100)}"] = ODD_VALUES[rng.integers(len(ODD_VALUES))]
        records.append(record)
    if array:
        return json.dumps(records, indent=int(rng.choice([0, 2])) or None).encode()
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def _typed(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell


def as_arrow(rng: np.random.Generator, content: dict[str, list[str]], ending: str) -> bytes:
    import pyarrow as arrow
    from pyarrow import feather, parquet

    arrays: dict[str, Any] = {}
    for name, cells in content.items():
        numbers = [value if isinstance(value := _typed(cell), float) else None for cell in cells]
        kinds = [
            lambda cells=cells: arrow.array(cells),
            lambda numbers=numbers: arrow.array(numbers, arrow.float32()),
            lambda cells=cells: arrow.array(rng.integers(-(2**63), 2**63 - 1, len(cells))),
            lambda cells=cells: arrow.array(rng.integers(0, 2**62, len(cells)), arrow.timestamp("ns")),
            lambda cells=cells: arrow.array([{"a": cell} for cell in cells], arrow.struct({"a": arrow.string()})),
            lambda cells=cells: arrow.array([cell.encode() for cell in cells], arrow.binary()),
            lambda cells=cells: arrow.array(cells).dictionary_encode(),
            lambda cells=cells: arrow.array(rng.integers(0, 2, len(cells)).astype(bool)),
            lambda cells=cells: arrow.array([None] * len(cells)),
        ]
        arrays[name] = kinds[rng.integers(len(kinds))]()
    buffer = io.BytesIO()
    if ending == "parquet":
        parquet.write_table(arrow.table(arrays), buffer)
    else:
        feather.write_feather(arrow.table(arrays), buffer, compression="uncompressed")
    return buffer.getvalue()


def mutated(rng: np.random.Generator, data: bytes) -> bytes:
    """Bytes flipped, cut, doubled, replaced or put in."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 6)):
        size = len(changed)
        at = int(rng.integers(size + 1))
        other = int(rng.integers(size + 1))
        first, last = min(at, other), max(at, other)
        match int(rng.integers(8)):
            case 0 if size:
                changed[at % size] ^= 1 << int(rng.integers(8))
            case 1:
                del changed[at:]
            case 2:
                del changed[first:last]
            case 3 if last - first < 100_000:
                changed[at:at] = changed[first:last]
            case 4:
                changed[at:at] = rng.bytes(int(rng.integers(1, 50)))
            case 5:
                changed[at:at] = str(rng.choice(ODD_CELLS)).encode("utf-8", "replace")
            case 6:
                changed[at:at] = bytes([int(rng.choice(list(b'"{}[],;\n\\:\r')))]) * int(rng.integers(1, 4))
            case _:
                changed = bytearray(changed.replace(b"\n", bytes(rng.choice([b"\r", b"\n\n", b"\0", b" "])), 3))
    return bytes(changed)


def fuzzed(folder: Path, seed: int) -> Path:
    """One file; the same for the same seed."""
    rng = np.random.default_rng(seed)
    ending = str(rng.choice(FORMATS))
    content = table(rng)
    kind = ending.partition(".")[0]
    if rng.random() < 0.05:
        data = rng.bytes(int(rng.integers(0, 3000)))
    elif kind in ("csv", "tsv"):
        data = as_csv(rng, content, str(rng.choice([",", ",", ";", "\t", "|"])))
    elif kind in ("jsonl", "json"):
        data = as_json(rng, content, array=kind == "json")
    else:
        data = as_arrow(rng, content, kind)
    if rng.random() < 0.5:
        data = mutated(rng, data)
    if ending.endswith(("gz", "zst")):
        data = _compressed(data, ending)
        data = mutated(rng, data) if rng.random() < 0.15 else data
    path = folder / f"{seed}.{ending}"
    path.write_bytes(data)
    return path


def _compressed(data: bytes, ending: str) -> bytes:
    if ending.endswith("gz"):
        return gzip.compress(data)
    import pyarrow

    return pyarrow.compress(data, codec="zstd", asbytes=True)


def read_through(path: Path, seed: int) -> str:
    """Read, infer and encode the file as a run would: "read", or the sentence it was refused with."""
    rng = np.random.default_rng(seed + 10**9)
    settings = Settings(
        targets=("y",),
        task=None
        if rng.random() < 0.8
        else str(rng.choice(["regression", "binary", "multiclass", "count", "positive"])),
        features=() if rng.random() < 0.8 else (str(rng.choice(["x0", "x0:category", "-x0", "x1:number", "x1:time"])),),
        missing=str(rng.choice(["impute", "reject"])),
        decimal=str(rng.choice(["auto", "auto", ".", ","])),
        encoding=str(rng.choice(["utf-8"] * 25 + ["cp1252", "cp1252", "utf-16", "shift_jis"])),
        key=None if rng.random() < 0.9 else "x0",
        sample=int(rng.choice([20, 1000])),
    )
    try:
        source = Source([str(path)], encoding=settings.encoding)
        try:
            schema, first = look(settings, source)
            encoder = Encoder(schema)
            for rows in _rows(first, source):
                for new in encoder.new_columns(rows):
                    encoder.add(new.feature)
                encoded = encoder.encode(rows)
                encoder.accept(encoded.additions)
                check(encoder, rows, encoded)
        finally:
            source.close()
    except StreamError as error:
        return str(error) or "no reason"
    return "read"


def _rows(first: list[Any], source: Source) -> Iterator[Any]:
    yield from first
    while (rows := source.read()) is not None:
        yield rows


def check(encoder: Encoder, rows: Any, encoded: Any) -> None:
    """Every row is encoded or rejected, and what goes out can be written and is finite or missing."""
    assert len(encoded.lines) + len(encoded.rejects) == len(rows) + len(rows.rejects)
    assert encoded.inputs.shape == (len(encoded.lines), encoder.width)
    assert len(encoder.names) == len(encoder.owners) == len(encoder.scaled) == encoder.width
    assert not np.isinf(encoded.inputs).any()
    assert not np.isinf(encoded.targets).any()
    for reject in encoded.rejects:
        json.dumps(reject._asdict(), ensure_ascii=False).encode("utf-8")
    json.dumps(encoder.schema.to_json(), ensure_ascii=False, allow_nan=False).encode("utf-8")


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in the main thread when this has taken too long."""

    def ring(number: int, frame: object) -> None:
        raise TimeoutError(f"not done after {seconds:g} s")

    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz the readers.")
    parser.add_argument("files", type=int, nargs="?", default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcomes: collections.Counter[str] = collections.Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.files):
            started = time.perf_counter()
            path = fuzzed(Path(folder), seed)
            try:
                with time_limit(SECONDS):
                    outcomes["read" if read_through(path, seed) == "read" else "refused"] += 1
            except Exception as error:
                outcomes["failed"] += 1
                print(f"{path.name}: {type(error).__name__}: {error}", flush=True)
            slowest = max(slowest, time.perf_counter() - started)
            path.unlink()
    print(json.dumps({"files": options.files, **outcomes, "slowest_seconds": round(slowest, 2)}))


if __name__ == "__main__":
    main()

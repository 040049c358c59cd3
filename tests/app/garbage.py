"""Rows that no one should learn from, of many kinds, planted among good ones."""

import struct
from pathlib import Path

import numpy as np

KINDS = {
    "too few columns": lambda row: row.rpartition(",")[0],
    "too many columns": lambda row: row + ",7",
    "one column": lambda row: "garbage",
    "wrong type": lambda row: "abc," + row.partition(",")[2],
    "an open quote": lambda row: '"' + row,
    "text behind a quote": lambda row: '"1"x,' + row.partition(",")[2],
    "a quote inside": lambda row: '1"2,' + row.partition(",")[2],
    "a NUL byte": lambda row: row[:3] + "\0" + row[3:],
    "infinity": lambda row: "inf," + row.partition(",")[2],
    "overflow": lambda row: "1e999," + row.partition(",")[2],
    "an unknown class": lambda row: row.rpartition(",")[0] + ",7",
    "bytes that are not text": lambda row: "\udcff" + row,
    "digits with underscores": lambda row: "1_000," + row.partition(",")[2],
    "hexadecimal": lambda row: "0x1F," + row.partition(",")[2],
    "another delimiter": lambda row: row.replace(",", ";"),
    "a very long line": lambda row: "9" * 1_100_000 + row,
}


def with_garbage(rows: list[str], path: Path, header: str, *, every: int, seed: int) -> list[int]:
    """Write the rows with one bad one after about every `every` good ones; returns the lines of the bad ones."""
    rng = np.random.default_rng(seed)
    kinds = list(KINDS)
    planted, line, number = [], 1, 0
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        file.write(header + "\n")
        for row in rows:
            file.write(row + "\n")
            line += 1
            if rng.random() < 1 / every:
                kind = kinds[number % len(kinds)]
                if kind == "a very long line" and number > 2 * len(kinds):
                    kind = kinds[0]
                number += 1
                file.write(KINDS[kind](row) + "\n")
                line += 1
                planted.append(line)
    return planted


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """One flipped bit, a cut, an extra tail, or lengths that lie."""
    kind = rng.integers(5)
    if kind == 0:
        place = int(rng.integers(len(data) * 8))
        changed = bytearray(data)
        changed[place // 8] ^= 1 << (place % 8)
        return bytes(changed)
    if kind == 1:
        return data[: int(rng.integers(len(data)))]
    if kind == 2:
        return data + rng.bytes(int(rng.integers(1, 100)))
    if kind == 3:
        length = int(rng.integers(0, 2**62)) * 2 + 1
        return data[:8] + struct.pack("<Q", length) + data[16:]
    first = int(rng.integers(len(data) - 8))
    noise = rng.bytes(8)
    return data[:first] + noise + data[first + 8 :] if data[first : first + 8] != noise else data[:-1]

"""Bytes into rows: the same rows however the bytes arrive, and every wrong one named with its line."""

import csv
import io

import numpy as np
import pytest

from natkal.errors import StreamError
from natkal.reading import csv_rows, lines, number_blocks
from natkal.reading.csv_header import read_header
from natkal.reading.csv_rows import CsvRows
from natkal.reading.json_rows import JsonRows, parse
from natkal.reading.lines import LineReader


class Drip(io.RawIOBase):
    """A pipe that hands over a few bytes at a time."""

    def __init__(self, data: bytes, sizes):
        self._data, self._sizes, self._at = data, sizes, 0

    def read1(self, limit: int = -1) -> bytes:
        size = min(next(self._sizes), limit)
        chunk = self._data[self._at : self._at + size]
        self._at += size
        return chunk


def drip(data: bytes, seed: int, largest: int) -> Drip:
    rng = np.random.default_rng(seed)
    return Drip(data, iter(lambda: int(rng.integers(1, largest)), None))


def read_all(reader) -> tuple[list[tuple], list[tuple[int, str]], int]:
    found, rejects, blank = [], [], 0
    while (rows := reader.read()) is not None:
        found += [(int(line), *(column[i] for column in rows.columns.values())) for i, line in enumerate(rows.lines)]
        rejects += [(reject.line, reject.reason) for reject in rows.rejects]
        blank += rows.blank
    return found, rejects, blank


def read_csv(data: bytes, stream=None, numeric=()):
    reader = LineReader(stream or io.BytesIO(data))
    names, delimiter = read_header(reader, "f.csv")
    rows = CsvRows(reader, names, delimiter, "f.csv", 0)
    rows.numeric = numeric
    return read_all(rows)


MESSY = (
    b'a,b\r\n1,x\r\n"2","say ""hi"""\n3,"two\nlines, one row"\n\n4\n5,y,z\n6,"open\n7,u\n8,a"b\n9,\xff\n10,n\0\n11,last'
)


def test_messy_file_row_by_row():
    found, rejects, blank = read_csv(MESSY)
    assert found == [
        (2, "1", "x"),
        (3, "2", 'say "hi"'),
        (4, "3", "two\nlines, one row"),
        (10, "7", "u"),
        (14, "11", "last"),
    ]
    assert [line for line, _ in rejects] == [7, 8, 9, 11, 12, 13]
    reasons = " | ".join(reason for _, reason in rejects)
    for words in ("1 columns, the header has 2", "3 columns", "quoting is wrong", "UTF-8", "NUL"):
        assert words in reasons
    assert blank == 1


@pytest.mark.parametrize("largest", [2, 7, 40])
def test_rows_do_not_depend_on_how_bytes_arrive(largest):
    for seed in range(5):
        assert read_csv(MESSY, drip(MESSY, seed, largest)) == read_csv(MESSY)


def test_quoted_fields_agree_with_the_standard_library():
    rng = np.random.default_rng(0)
    words = ["plain", 'with "quotes"', "a,comma", "new\nline", "", " space ", "é"]
    rows = [[str(rng.integers(100)), words[rng.integers(len(words))]] for _ in range(200)]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["a", "b"], *rows])
    found, rejects, blank = read_csv(text.getvalue().encode())
    assert (rejects, blank) == ([], 0)
    assert [list(row[1:]) for row in found] == rows


def test_fast_and_careful_readers_give_the_same_bits():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(500, 2)) * 10.0 ** rng.integers(-300, 300, size=(500, 2))
    cells = [[repr(a), f"{b:.3g}"] for a, b in values.tolist()]
    data = ("a,b\n" + "\n".join(map(",".join, cells)) + "\n").encode()
    fast, *_ = read_csv(data, numeric=("a", "b"))
    careful, *_ = read_csv(data)
    assert isinstance(fast[0][1], float)
    assert isinstance(careful[0][1], str)
    assert [(line, a, b) for line, a, b in fast] == [(line, float(a), float(b)) for line, a, b in careful]


@pytest.mark.parametrize("odd", ["", "nan", "inf", "1_0", "0x10", "1e999", "x", '"3"', "1,2", "٣", "1 2", "#"])
def test_anything_odd_goes_to_the_careful_reader(odd):
    data = f"a,b\n1,2\n3,{odd}\n".encode()
    fast, *_ = read_csv(data, numeric=("a", "b"))
    careful, *_ = read_csv(data)
    assert fast == careful


def test_a_line_of_many_megabytes_is_dropped_without_being_kept(monkeypatch):
    monkeypatch.setattr(lines, "LONGEST", 1000)
    monkeypatch.setattr(lines, "CHUNK", 1000)
    monkeypatch.setattr(csv_rows, "LONGEST", 1000)
    data = b"a,b\n1,2\n3," + b"x" * 50_000 + b"\n5,6\n"
    for stream in (None, drip(data, 0, 700)):
        found, rejects, _ = read_csv(data, stream)
        assert [row[0] for row in found] == [2, 4]
        assert rejects == [(3, "the line is longer than 1,000 bytes")]


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        (b"a,a\n", "twice"),
        (b"column 2,\n", "twice"),
        (b"\n , \n", "is empty"),
        (b"", "is empty"),
        (b"\xff,a\n", "UTF-8"),
        (b"a\0,b\n", "NUL"),
        (b'"a\n', "header"),
        (b"\n" * 20_000, "lines are blank"),
    ],
)
def test_bad_headers_stop_the_run(header, complaint):
    with pytest.raises(StreamError, match=complaint):
        read_header(LineReader(io.BytesIO(header)), "f.csv")


@pytest.mark.parametrize(
    ("header", "names", "delimiter", "line"),
    [
        (b",a,b\n", ["column 1", "a", "b"], ",", 2),
        (b"a;b;\n", ["a", "b", "column 3"], ";", 2),
        (b"\n \r\n,,\na,b\n", ["a", "b"], ",", 5),
        (b'"a, really, long";b\n', ["a, really, long", "b"], ";", 2),
        (b'"two\nlines",b\n', ["two\nlines", "b"], ",", 3),
    ],
)
def test_headers_as_spreadsheets_and_pandas_write_them(header, names, delimiter, line):
    reader = LineReader(io.BytesIO(header + b"1,2,3\n"))
    assert read_header(reader, "f.csv") == (names, delimiter)
    assert reader.line == line


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": 1, "a": 2}', "the key 'a' stands twice"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not"),
        (b"[1, 2]", "not an object"),
        (b'{"a": 1', "not JSON"),
        (b'{"a": "\0"}', "NUL"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b"[" * 100_000, "nested too deeply|not JSON"),
        (b'{"a": "\\ud800"}', r"half of a surrogate pair, \ud800"),
        (b'{"\\uDFFF": 1}', "half of a surrogate pair"),
        (b'{"a": ' + b"1" * 5000 + b"}", "too many digits"),
    ],
)
def test_json_rows_that_are_wrong(line, reason):
    answer = parse(line)
    assert isinstance(answer, str)
    assert any(part in answer for part in reason.split("|"))


def test_json_lines():
    data = b'{"a": 1, "b": "x"}\n\n{"b": null}\n{"a": 1, "a": 1}\n'
    found, rejects, blank = read_all(JsonRows(LineReader(io.BytesIO(data)), "f", 0))
    assert found == [(1, 1, "x"), (3, None, None)]
    assert [line for line, _ in rejects] == [4]
    assert blank == 1


def written_numbers(rng: np.random.Generator, count: int) -> list[str]:
    """Numbers as people, programs and other languages write them: any length, any size, signs, exponents."""
    plain = [
        f"{value:.{int(rng.integers(1, 20))}g}" for value in rng.normal(size=count) * 10.0 ** rng.integers(-9, 9, count)
    ]
    exact = [repr(float(value)) for value in rng.normal(size=count) * 10.0 ** rng.integers(-300, 300, count)]
    digits = ["".join(map(str, rng.integers(0, 10, int(rng.integers(1, 40))))) for _ in range(count)]
    odd = [
        "+1",
        ".5",
        "5.",
        "-0",
        "-0.0",
        "1E5",
        "5e-324",
        "2.4e-324",
        "1e-999",
        "007",
        "9007199254740993",
        "1.7976931348623157e308",
    ]
    return [*plain, *exact, *digits, *odd]


@pytest.mark.parametrize("read", [number_blocks._by_arrow, number_blocks._by_numpy])
def test_blocks_of_numbers_are_read_to_the_last_bit(read):
    cells = written_numbers(np.random.default_rng(0), 300)
    cells = cells[: len(cells) // 3 * 3]
    lines_ = [";".join(cells[i : i + 3]) for i in range(0, len(cells), 3)]
    found = read(("\n".join(lines_) + "\n").encode(), ["a", "b", "c"], ["c", "a"], ";")
    expected = np.array([float(cell) for cell in cells]).reshape(-1, 3)[:, [2, 0]]
    assert np.column_stack(found).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "row",
    [
        "1,",
        "1",
        "1,2,3",
        "",
        "1,2e",
        "1,--2",
        "1,1-2",
        "e,1",
        "1,nan",
        "1,inf",
        "1,1e999",
        "1,0x1",
        "1,1_0",
        '"1",2',
        "1,x",
    ],
)
def test_a_block_with_one_odd_row_is_left_to_the_careful_reader(row):
    data = b"1,2\n" + row.encode() + b"\n3,4\n"
    assert number_blocks.read_numbers(data, ["a", "b"], ["a", "b"], ",") is None


def test_lines_that_end_as_on_windows_are_read_at_once():
    found = number_blocks.read_numbers(b"1,2\r\n3,4\r\n", ["a", "b"], ["b"], ",")
    assert found is not None
    assert found[0].tolist() == [2.0, 4.0]
    assert number_blocks.read_numbers(b"1,2\r\n3\r,4\r\n", ["a", "b"], ["b"], ",") is None

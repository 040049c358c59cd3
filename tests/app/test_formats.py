"""Encodings, JSON arrays, columnar types: every file gives its rows, resumes anywhere, or says what it is."""

import datetime
import gzip
import json

import numpy as np
import pytest

from natkal.errors import StreamError
from natkal.reading import json_array, json_rows, lines
from natkal.reading.first_rows import look
from natkal.reading.source import Source
from natkal.settings.settings import Settings
from natkal.tables.schema.rows import Position


def cells_of(source: Source) -> tuple[list[tuple], list[tuple[int, str]]]:
    """Every row with its line, and the rejects."""
    found, rejects = [], []
    while (rows := source.read()) is not None:
        names = list(rows.columns)
        found += [
            (int(line), {name: rows.columns[name][i] for name in names if rows.columns[name][i] is not None})
            for i, line in enumerate(rows.lines)
        ]
        rejects += [(reject.line, reject.reason) for reject in rows.rejects]
    source.close()
    return found, rejects


# -- encodings ---------------------------------------------------------------------------------------------------------

TOWNS = "stadt,y\n" + "".join(f"Köln {i},{i}\nMünchen {i},{i}\n" for i in range(20))


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_another_encoding_is_named_and_then_read(tmp_path, encoding):
    path = tmp_path / "d.csv"
    path.write_bytes(TOWNS.encode(encoding))
    with pytest.raises(StreamError, match=r"--encoding [\w-]+ reads it") as caught:
        Source([str(path)])
    named = str(caught.value).rpartition("--encoding ")[2].partition(" ")[0]
    (tmp_path / "plain.csv").write_text(TOWNS, encoding="utf-8")
    assert cells_of(Source([str(path)], encoding=named)) == cells_of(Source([str(tmp_path / "plain.csv")]))


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    (tmp_path / "d.csv").write_text("a,b\n1,2\n", encoding="utf-8-sig")
    (tmp_path / "d.jsonl").write_text('{"a": 1}\n', encoding="utf-8-sig")
    assert cells_of(Source([str(tmp_path / "d.csv")])) == ([(2, {"a": "1", "b": "2"})], [])
    assert cells_of(Source([str(tmp_path / "d.jsonl")])) == ([(1, {"a": 1})], [])


def test_bytes_that_are_no_text_cost_their_row_in_any_encoding(tmp_path):
    (tmp_path / "d.csv").write_bytes("a,b\n1,é\n2,".encode("cp1252") + b"\x81\n3,x\n")
    found, rejects = cells_of(Source([str(tmp_path / "d.csv")], encoding="cp1252"))
    assert [row for _, row in found] == [{"a": "1", "b": "é"}, {"a": "3", "b": "x"}]
    assert [line for line, _ in rejects] == [3]


def test_a_transcoded_file_resumes_from_every_position(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "CHUNK", 70)
    path = tmp_path / "d.csv"
    path.write_bytes(TOWNS.encode("utf-16"))
    whole, _ = cells_of(Source([str(path)], encoding="utf-16"))
    source, taken = Source([str(path)], encoding="utf-16"), 0
    while (rows := source.read()) is not None:
        taken += len(rows)
        rest, _ = cells_of(Source([str(path)], rows.position, encoding="utf-16"))
        assert rest == whole[taken:]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (gzip.compress(b"a,b\n", mtime=0), r"let its name end in \.gz"),
        (b"PK\x03\x04" + bytes(50), "Excel"),
        (b"PAR1" + bytes(50), "Parquet"),
        ("имя,y\n" * 30, "name its encoding with --encoding"),
    ],
)
def test_a_file_that_is_something_else_is_named(tmp_path, data, complaint):
    path = tmp_path / "d.csv"
    path.write_bytes(data if isinstance(data, bytes) else data.encode("cp1251"))
    with pytest.raises(StreamError, match=complaint):
        Source([str(path)])


def test_an_unknown_encoding_is_refused(tmp_path):
    (tmp_path / "d.csv").write_text("a\n1\n")
    for name in ("klingon", "base64", "a\0b"):
        with pytest.raises(StreamError, match="--encoding"):
            Source([str(tmp_path / "d.csv")], encoding=name)


# -- JSON --------------------------------------------------------------------------------------------------------------

RECORDS = [{"a": i, "s": 'quote " brace } bracket ] \\', "n": {"x": [1, {"y": 2}]}} for i in range(50)]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ending", ["json", "jsonl", "json.gz"])
def test_a_json_array_is_its_elements_wherever_it_is_cut(tmp_path, monkeypatch, indent, ending):
    monkeypatch.setattr(lines, "CHUNK", 97)
    monkeypatch.setattr(lines, "FIRST", 97)
    text = json.dumps(RECORDS, indent=indent).encode()
    path = tmp_path / f"d.{ending}"
    path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    whole, rejects = cells_of(Source([str(path)]))
    assert (whole, rejects) == ([(i + 1, record) for i, record in enumerate(RECORDS)], [])
    source = Source([str(path)])
    taken = 0
    while (rows := source.read()) is not None:
        taken += len(rows)
        assert cells_of(Source([str(path)], rows.position))[0] == whole[taken:]


def test_objects_over_several_lines_need_no_array(tmp_path):
    path = tmp_path / "d.json"
    path.write_text("\n".join(json.dumps(record, indent=1) for record in RECORDS))
    assert [row for _, row in cells_of(Source([str(path)]))[0]] == RECORDS


def test_damage_in_an_array_costs_the_elements_it_is_in(tmp_path, monkeypatch):
    good = [json.dumps({"a": i, "b": "x" * 20}) for i in range(30)]
    for bad in ('{"a": 1,, "b": 2}', '{"a": NaN}', "7", '"text"', '{"a": "open}', '{"a": {"b": 1}', '{"a": 1, "a": 2}'):
        elements = [*good[:10], bad, *good[10:]]
        (tmp_path / "d.json").write_text("[" + ", ".join(elements) + "]")
        for longest in (10**6, 400):
            monkeypatch.setattr(json_array, "LONGEST", longest)
            found, rejects = cells_of(Source([str(tmp_path / "d.json")]))
            kept = [row["a"] for _, row in found]
            assert set(range(30)) - set(kept) <= {9, 10}, (bad, longest)
            assert rejects, bad


def test_an_object_that_is_too_long_is_dropped_without_being_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "CHUNK", 300)
    monkeypatch.setattr(lines, "FIRST", 300)
    monkeypatch.setattr(json_array, "LONGEST", 1000)
    elements = ['{"a": 1}', '{"a": "' + "x" * 20_000 + '"}', '{"a": 3}', '{"a": 4}']
    (tmp_path / "d.json").write_text("[" + ",\n".join(elements) + "]")
    source = Source([str(tmp_path / "d.json")])
    found, rejects = cells_of(source)
    assert [(line, row["a"]) for line, row in found] == [(1, 1), (3, 3), (4, 4)]
    assert rejects == [(2, "the object is longer than 1,000 bytes")]


def test_keys_that_are_values_are_refused_and_few_stay_in_bounded_memory(tmp_path, monkeypatch):
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps({f"k{i}": 1, "y": i}) + "\n" for i in range(300)))
    monkeypatch.setattr(json_rows, "MAX_CELLS", 1000)
    source = Source([str(path)])
    whole, _ = cells_of(Source([str(path)]))
    assert [row["y"] for _, row in whole] == list(range(300))
    taken = 0
    while (rows := source.read()) is not None:
        assert len(rows.columns) * len(rows) <= 1100
        taken += len(rows)
        assert cells_of(Source([str(path)], rows.position))[0] == whole[taken:]
    monkeypatch.setattr(json_rows, "MAX_KEYS", 100)
    with pytest.raises(StreamError, match=r"d\.jsonl, line 100: more than 100 different keys"):
        cells_of(Source([str(path)]))


# -- columnar ----------------------------------------------------------------------------------------------------------


def test_arrow_types_are_cells(tmp_path):
    import pyarrow as arrow
    from pyarrow import parquet

    big = 2**60
    moments = arrow.array([1_700_000_000_000_000_001, 2], arrow.timestamp("ns"))
    content = {"id": [big + 1, big + 2], "when": moments, "n": arrow.array([1, 2], arrow.int32())}
    parquet.write_table(arrow.table(content), tmp_path / "d.parquet")
    found, _ = cells_of(Source([str(tmp_path / "d.parquet")]))
    assert [row["id"] for _, row in found] == [big + 1, big + 2]
    assert found[0][1]["when"] == datetime.datetime(2023, 11, 14, 22, 13, 20)
    assert [row["n"] for _, row in found] == [1.0, 2.0]
    twice = arrow.table([arrow.array([1]), arrow.array([2])], names=["a", "a"])
    parquet.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(StreamError, match=r"twice|duplicate"):
        Source([str(tmp_path / "twice.parquet")])


def test_whole_numbers_beyond_two_to_the_53_are_a_regression(tmp_path):
    import pyarrow as arrow
    from pyarrow import parquet

    values = [None if i % 7 == 0 else 2**60 + i for i in range(300)]
    parquet.write_table(arrow.table({"a": np.arange(300.0), "y": values}), tmp_path / "d.parquet")
    source = Source([str(tmp_path / "d.parquet")])
    schema, _ = look(Settings(targets=("y",)), source)
    source.close()
    assert schema.targets[0].task == "regression"


# -- whatever else goes wrong ------------------------------------------------------------------------------------------


def test_any_failure_names_file_and_line(tmp_path, monkeypatch):
    path = tmp_path / "d.csv"
    path.write_text("a,y\n1,2\n")

    def broken(self):
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr("natkal.reading.csv_rows.CsvRows.read", broken)
    with pytest.raises(StreamError, match=r"d\.csv: cannot be read behind line 1: RuntimeError: nobody thought"):
        Source([str(path)]).read()


def test_a_file_without_rows_says_what_was_wrong_with_the_first(tmp_path):
    (tmp_path / "d.csv").write_text("a,y\n1,2,3\n4,5,6\n")
    with pytest.raises(StreamError, match=r"no row that can be read; .*d\.csv, line 2: 3 columns, the header has 2"):
        look(Settings(targets=("y",)), Source([str(tmp_path / "d.csv")]))


def test_a_source_knows_its_columns_where_a_file_names_them(tmp_path):
    (tmp_path / "d.csv").write_text("a,y\n1,2\n")
    (tmp_path / "d.jsonl").write_text('{"a": 1}\n')
    csv_source, json_source = Source([str(tmp_path / "d.csv")]), Source([str(tmp_path / "d.jsonl")])
    assert (csv_source.columns, csv_source.open_columns) == (["a", "y"], False)
    assert (json_source.columns, json_source.open_columns) == (None, True)
    assert csv_source.read().position == Position(0, 8, 3)
    csv_source.close()

"""The notebook over an archive: its cells run, in their order, over a table as the archive makes
it."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.pipelines import archive
from penstock.spark.delta_files import write
from penstock.spark.delta_table import TableLocation, commit

from .sample import defaults
from .test_delta_table import rows

NOTEBOOK = Path(__file__).parents[2] / "examples" / "archive.ipynb"
BODIES = (b'{"kind": "paid"}', b'{"kind": "sent"}', b'{"kind": "paid"}', b"\xff", b"no JSON")


def archived(path: Path, offsets: list[int]) -> None:
    settings = defaults(archive.SETTINGS, table=str(path), share_files=False)
    shape, place = archive.shape_of(settings, (), None), TableLocation(str(path), {})
    place.create(shape, {})
    messages = rows(range(len(offsets)), "orders")
    given = {name: messages.column(name) for name in messages.schema.names}
    given |= {"offset": pa.array(offsets), "body": pa.array(BODIES)}
    absent = {field.name: pa.nulls(len(offsets), field.type) for field in shape.schema}
    columns = [{**absent, **given}[name] for name in shape.schema.names]
    batch = pa.RecordBatch.from_arrays(columns, schema=shape.schema)
    commit(place, shape, "archive", 0, write(place, shape, [batch]))


def run(table: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the cells have made, by name."""
    monkeypatch.setenv("PENSTOCK_TABLE", str(table))
    found: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), found)
    return found


def test_each_cell_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archived(tmp_path / "whole", [0, 1, 2, 3, 4])
    found = run(tmp_path / "whole", monkeypatch)
    assert found["what_is_there"]["messages"].tolist() == [5]
    assert found["missing"].empty
    assert found["by_kind"].to_dict("records") == [
        {"topic": "orders", "kind": "paid", "messages": 2},
        {"topic": "orders", "kind": "sent", "messages": 1},
    ]
    assert found["by_minute"]["messages"].tolist() == [5]


def test_a_gap_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archived(tmp_path / "holed", [0, 1, 2, 5, 6])
    missing = run(tmp_path / "holed", monkeypatch)["missing"]
    assert missing.to_dict("records") == [{"topic": "orders", "partition": 0, "missing": 2}]

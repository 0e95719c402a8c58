import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.command.flags import read_document
from penstock.pipelines import runner
from penstock.pipelines.__main__ import ENTRY, main
from penstock.pipelines.progress import Progress
from penstock.pipelines.runner import stopped_by_signals
from penstock.pipelines.settings import choose, resolve
from penstock.tools.main import main as penstock

from . import sample
from .sample import defaults

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runner.PIPELINES, sample.NAME, sample.__name__)


@pytest.fixture
def in_shared_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def shared(*arguments: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(runner, "open_for", shared)


def run(*arguments: str) -> int:
    return penstock(["pipeline", "run", sample.NAME, *arguments])


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        (["--nope"], 2, "flag provided but not defined: -nope"),
        ([], 1, "penstock pipeline sample: topics: () is not valid: it is needed"),
        (["--topics=t", "--rows=13"], 1, "it brings bad luck"),
        (["--topics=t", "--config=/nowhere.toml"], 1, "failed to load the file"),
    ],
)
def test_mistakes_are_told_before_spark_starts(
    arguments: list[str], code: int, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == code
    assert output in capsys.readouterr().err


def test_an_unknown_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    assert penstock(["pipeline", "run", "nope"]) == 2
    assert "no such pipeline: nope" in capsys.readouterr().err
    assert main([]) == 2
    assert main(["--help"]) == 0


def test_the_script_for_spark_submit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--entry"]) == 0
    assert capsys.readouterr().out == f"{ENTRY}\n"
    here = subprocess.run([sys.executable, str(ENTRY), "--help"], capture_output=True, text=True)
    assert (here.returncode, here.stderr) == (0, "")
    assert here.stdout.startswith("usage: NAME [settings]")
    beside = {path.name for path in ENTRY.parent.glob("*.py")}
    assert beside == {"__init__.py", ENTRY.name}  # nothing that hides a module of Python's own


@pytest.mark.usefixtures("in_shared_session")
def test_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.toml"
    file.write_text('[nightly]\npipeline = "sample"\ntopics = ["t"]\nrows = 5\n')
    assert penstock(["pipeline", "run", "nightly", "--config", str(file), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["rows"] for row in rows if "rows" in row][-1] == 5  # no nsqd may be said behind it


@pytest.mark.usefixtures("in_shared_session")
def test_a_failure_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--topics=t", "--mood=bad") == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "penstock pipeline sample: topic orders partition 0: offsets 3 to 4 are gone"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_for_an_end(number: int) -> None:
    before = signal.getsignal(number)
    progress = Progress("sample", 0)
    with stopped_by_signals(progress):
        os.kill(os.getpid(), number)
        assert progress.wait(5)
    assert signal.getsignal(number) is before


def test_where_spark_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    confs = ("spark.ui.enabled=true", "spark.sql.session.timeZone=Asia/Tokyo")
    found = defaults(sample.PIPELINE.settings, topics=("t",), conf=confs)
    assert runner.master_of(found) == "local[*,4]"
    conf = runner.session_settings(found)
    assert (conf["spark.driver.bindAddress"], conf["spark.ui.enabled"]) == ("127.0.0.1", "true")
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert "log4j2.configurationFile=file:" in conf["spark.driver.extraJavaOptions"]
    cluster = defaults(sample.PIPELINE.settings, topics=("t",), master="spark://host:7077")
    conf = runner.session_settings(cluster)
    assert "spark.driver.bindAddress" not in conf
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert runner.master_of(found) == ""
    assert "spark.driver.extraJavaOptions" not in runner.session_settings(found)


def test_the_documented_file_is_understood() -> None:
    document = read_document(str(ROOT / "docs/pipelines.toml"))
    for name in document.keys() - {"url", "conf"}:
        pipeline = runner.load(choose(name, document, runner.PIPELINES))
        found = resolve(name, pipeline.settings, [], {}, document)
        assert found.explicit >= {"url", *document[name]} - {"pipeline"}

"""`penstock bundle` over real daemons: what is gathered, what is wrong, and what never is in it."""

import base64
import json
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from e2e.certificates import Certificates
from e2e.daemon import Daemon
from e2e.lookupd import Lookupd, eventually

from .utilities import Run, http

USER, PASSWORD, PATH, QUERY = "auth-user", "s3cr3t-Passwort", "geheimer-Pfad", "t0ken-Wert"
# What says more about the machine that runs the tests than about us.
OF_THE_MACHINE = ("disk", "memory", "syncs slowly", "descriptors", "inodes", "open few files")


class Cluster(NamedTuple):
    lookupds: list[Lookupd]
    nsqds: list[Daemon]
    certificates: Certificates
    flags: list[str]

    @property
    def asked(self) -> list[str]:
        return [f"--lookupd-http-address=127.0.0.1:{one.http_port}" for one in self.lookupds]

    def wait_for(self, topic: str, *nsqds: Daemon) -> None:
        eventually(lambda: all(one.knows(topic, *nsqds) for one in self.lookupds))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    path = tmp_path_factory.mktemp("bundle")
    certificates = Certificates(path / "certificates")
    with ExitStack() as stack:
        lookupds = [stack.enter_context(Lookupd(path / f"lookupd_{one}")) for one in range(2)]
        auth = f"http://{USER}:{PASSWORD}@127.0.0.1:9/{PATH}?access={QUERY}"
        flags = [*certificates.flags, "--tls-required=tcp-https", f"--auth-http-address={auth}",
                 "--broadcast-address=127.0.0.1"]  # fmt: skip
        answer = [f"--lookupd-tcp-address={one.address}" for one in lookupds]
        nsqds = [stack.enter_context(Daemon(path / f"nsqd_{one}", *flags, *answer,
                                            f"--node-id={one}")) for one in range(2)]  # fmt: skip
        for one in nsqds:
            one.post("/topic/create?topic=orders")
        found = Cluster(lookupds, nsqds, certificates, flags)
        found.wait_for("orders", *nsqds)
        yield found


def gather(penstock: Run, path: Path, *arguments: str) -> dict[str, bytes]:
    """The files of a new bundle."""
    code, out, _ = penstock("bundle", "gather", "-o", path, *arguments)
    assert (code, "penstock bundle analyze" in out) == (0, True)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def analyze(penstock: Run, path: Path) -> tuple[int, dict[str, str]]:
    """The exit code, and the level of each finding."""
    code, out, _ = penstock("bundle", "analyze", path, "--json")
    output = json.loads(out)
    levels = {one["what"]: one["level"] for one in output["findings"]}
    assert output["status"] == ("OK", "WARNING", "CRITICAL")[code]
    return code, {what: level for what, level in levels.items()
                  if not any(word in what for word in OF_THE_MACHINE)}  # fmt: skip


def test_a_healthy_installation(cluster: Cluster, tmp_path: Path, penstock: Run) -> None:
    path = tmp_path / "b.zip"
    files = gather(penstock, path, *cluster.asked, "--seconds=1")
    _, levels = analyze(penstock, path)
    assert {one for one in levels.values() if one != "NOTE"} == set(), levels
    manifest = json.loads(files["manifest.json"])
    assert len(manifest["daemons"]) == 4
    assert manifest["failures"] == []
    for place in ("nsqd/1", "nsqd/2"):
        wanted = ("ping.txt", "info.json", "stats-1.json", "stats-2.json", "metrics.txt",
                  "config.json", "stacks.txt", "heap.txt", "profile.txt", "facts.json")  # fmt: skip
        assert [one for one in wanted if f"{place}/{one}" not in files] == []
        assert json.loads(files[f"{place}/config.json"])["durability"] == "disk"
        low, high = json.loads(files[f"{place}/facts.json"])["clock_offset_s"]
        assert low <= 0 <= high
    assert json.loads(files["nsqlookupd/1/topics.json"]) == {"topics": ["orders"]}
    assert json.loads(files["machine/versions.json"])["penstock"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_no_secret_is_in_any_byte(cluster: Cluster, tmp_path: Path, penstock: Run) -> None:
    path = tmp_path / "b.zip"
    files = gather(penstock, path, *cluster.asked, "--seconds=0")
    files["the zip itself"] = path.read_bytes()
    key = cluster.certificates.key.read_bytes().splitlines()[1]
    secrets = [one.encode() for one in (USER, PASSWORD, PATH, QUERY)] + [key]
    secrets += [base64.b64encode(PASSWORD.encode()).rstrip(b"=")]
    found = [(name, one) for name, data in files.items() for one in secrets if one in data]
    assert found == []
    config = json.loads(files["nsqd/1/config.json"])
    assert config["auth_http_addresses"] == ["http://127.0.0.1:9/***"]
    assert b"--auth-http-address=http://127.0.0.1:9/***" in files["nsqd/1/cmdline.txt"]


def test_a_node_that_wants_tls(cluster: Cluster, tmp_path: Path, penstock: Run) -> None:
    path, authority = tmp_path / "b.zip", cluster.certificates.authority
    with Daemon(tmp_path / "nsqd", *cluster.certificates.flags, "--tls-required=true") as nsqd:
        asked = penstock, path, http(nsqd), "--seconds=0"
        files = gather(*asked, f"--tls-root-ca-file={authority}")
        assert json.loads(files["nsqd/1/info.json"])["version"]
        assert json.loads(gather(*asked)["manifest.json"])["failures"]
    code, levels = analyze(penstock, path)
    assert code == 2
    assert any("does not answer" in what for what in levels)

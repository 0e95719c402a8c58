"""The chart, as Helm itself renders it, and whether its manifests agree with the daemons.

Helm and the schemas of Kubernetes come from packages that are too large for everybody's `.venv`.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from cases import each
from environments import Venv
from penstock.tools.output import FAILED

DEPLOY = Path(__file__).parents[1] / "deploy"
CHART = DEPLOY / "helm" / "penstock"
TOOLS = ("helm-python-sdk>=0.2.2,<0.3", "kubernetes-validate>=1.37", "pyyaml>=6")
VERSIONS = ("1.28", "1.37")  # of Kubernetes: the oldest that Chart.yaml lets in, and a new one
VALUES: dict[str, dict[str, Any]] = {
    "alone": {},
    "cluster": {
        "cluster": {"etcd": "a:2379,b:2379", "secret": "peers"},
        "nsqd": {"replicas": 3, "firstNodeId": 0},
    },
    "everything": {
        "antiAffinity": "hard",
        "image": {"pullSecrets": ["registry"]},
        "cluster": {
            "etcd": "a:2379", "tls": True, "user": "penstock", "passwordSecret": "password",
            "caSecret": "authority", "secret": "peers",
        },
        "http": {"secret": "changes"},
        "tls": {"secret": "certificate"},
        "nsqd": {
            "drainSeconds": 90, "extraArgs": ["--max-depth=9"], "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "mq", "operator": "Exists"}], "storage": {"className": "fast"},
        },
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "no web UI": {"nsqadmin": {"enabled": False}},
    # refused
    "misspelt": {"nsqd": {"replica": 3}},
    "no flag": {"nsqd": {"extraArgs": ["max-depth 9"]}},
    "no secret": {"cluster": {"etcd": "a:2379"}},
}  # fmt: skip
RENDER = """
import json, sys
import helm_python, kubernetes_validate, yaml

chart, *versions = sys.argv[1:]
rendered = {}
with helm_python.Chart.load(chart) as loaded:
    for name, values in json.load(sys.stdin).items():
        try:
            loaded.validate_schema(values)
            files = loaded.render(values, name="penstock", namespace="default")
        except helm_python.HelmError as error:
            rendered[name] = str(error)
            continue
        texts = [text for file, text in files.items() if file.endswith(".yaml")]
        rendered[name] = [one for text in texts for one in yaml.safe_load_all(text) if one]
        for manifest in rendered[name]:
            for version in versions if "coreos" not in manifest["apiVersion"] else ():
                kubernetes_validate.validate(manifest, version, strict=True)
print(json.dumps({"errors": helm_python.lint(chart)["errors"], "rendered": rendered}))
"""
ADDRESS = re.compile(r"=([a-z0-9-]+)\.([a-z0-9-]+)\.default\.svc\.cluster\.local:(\d+)$")
Manifests = list[dict[str, Any]]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    venv = Venv(tmp_path_factory.mktemp("helm") / "venv")
    venv.install(*TOOLS)
    done = subprocess.run(
        [venv.python, "-c", RENDER, str(CHART), *VERSIONS],
        input=json.dumps(VALUES), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reply = json.loads(done.stdout)
    assert reply["errors"] == []
    return dict(reply["rendered"])


@pytest.fixture
def installations(rendered: dict[str, Any]) -> list[Manifests]:
    found = [one for one in rendered.values() if isinstance(one, list)]
    assert len(found) == 4
    return found


def of_kind(kind: str, manifests: Manifests) -> Manifests:
    return [one for one in manifests if one["kind"] == kind]


def daemons(installations: list[Manifests]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, spec of the pod, and its one container."""
    for manifests in installations:
        for one in of_kind("StatefulSet", manifests):
            pod = one["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            yield container["name"], pod, container


@each(
    ("name", "message"),
    [
        ("misspelt", "additional properties 'replica' not allowed"),
        ("no flag", "extraArgs"),
        ("no secret", "cluster.secret: nodes of a cluster need a Secret"),
    ],
)
def test_values_that_make_no_sense_are_refused(
    rendered: dict[str, Any], name: str, message: str
) -> None:
    assert message in rendered[name]


def test_every_daemon_starts_with_its_arguments(installations: list[Manifests]) -> None:
    seen = set()
    for name, _, container in daemons(installations):
        program, *flags = container["args"]
        variables = {one["name"] for one in container.get("env", ())}
        used = {found for flag in flags for found in re.findall(r"\$\((\w+)\)", flag)}
        assert used <= variables
        environment = {"PENSTOCK_ID": "2"} if "PENSTOCK_ID" in variables else {}
        flags = [flag.replace("$(POD_NAME)", "pod-2") for flag in flags]
        options = import_module(f"penstock.{program}.options").read_options(flags, environment)
        if name == "nsqd":
            assert options.node_id == 2
            assert options.broadcast_address == "pod-2.penstock-nsqd.default.svc.cluster.local"
        seen.add(program)
    assert seen == {"nsqd", "nsqlookupd", "nsqadmin"}


def test_ports_are_those_that_daemons_listen_on(installations: list[Manifests]) -> None:
    for _, _, container in daemons(installations):
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        listening = re.findall(r"=0\.0\.0\.0:(\d+)", " ".join(container["args"]))
        assert sorted(listening) == sorted(str(port) for port in ports.values())
        probes = [value for key, value in container.items() if key.endswith("Probe")]
        assert {(one.get("httpGet") or one["tcpSocket"])["port"] for one in probes} == {"http"}
        assert container["readinessProbe"]["httpGet"]["path"] == "/ping"


def test_services_lead_to_pods(installations: list[Manifests]) -> None:
    for manifests in installations:
        sets = of_kind("StatefulSet", manifests)
        pods = {one["metadata"]["name"]: one["spec"]["template"] for one in sets}
        for service in of_kind("Service", manifests):
            wanted = service["spec"]["selector"].items()
            (pod,) = [one for one in pods.values() if wanted <= one["metadata"]["labels"].items()]
            ports = {
                one["name"]: one["containerPort"] for one in pod["spec"]["containers"][0]["ports"]
            }
            for port in service["spec"]["ports"]:
                assert ports[port["targetPort"]] == port["port"]
        services = {one["metadata"]["name"] for one in of_kind("Service", manifests)}
        assert {one["spec"]["serviceName"] for one in sets} <= services
        for budget in of_kind("PodDisruptionBudget", manifests):
            labels = budget["spec"]["selector"]["matchLabels"].items()
            assert any(labels <= pod["metadata"]["labels"].items() for pod in pods.values())


def test_addresses_are_those_of_pods(installations: list[Manifests]) -> None:
    """`--lookupd-tcp-address=POD.SERVICE...:PORT`, one for every nsqlookupd."""
    for manifests in installations:
        sets = {one["metadata"]["name"]: one["spec"] for one in of_kind("StatefulSet", manifests)}
        lookupd = sets["penstock-nsqlookupd"]
        names = {f"penstock-nsqlookupd-{number}" for number in range(lookupd["replicas"])}
        ports = {
            one["containerPort"] for one in lookupd["template"]["spec"]["containers"][0]["ports"]
        }
        asking = [one for one in daemons([manifests]) if one[0] != "nsqlookupd"]
        for _, _, container in asking:
            found = [
                match.groups() for flag in container["args"] if (match := ADDRESS.search(flag))
            ]
            assert {name for name, _, _ in found} == names
            assert {service for _, service, _ in found} == {"penstock-nsqlookupd"}
            assert {int(port) for _, _, port in found} <= ports


def test_files_of_secrets_are_there(installations: list[Manifests]) -> None:
    for _, pod, container in daemons(installations):
        mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
        volumes = {one["name"]: one for one in pod["volumes"]}
        named = re.findall(r"=(/etc/penstock/[a-z-]+)/", " ".join(container["args"]))
        assert set(named) == {path for path in mounts if path.startswith("/etc/penstock/")}
        assert all("secretName" in volumes[mounts[path]]["secret"] for path in named)
        assert set(mounts.values()) - {"data"} == volumes.keys()


def test_the_drain_before_a_stop(rendered: dict[str, Any]) -> None:
    (nsqd,) = [one for name, _, one in daemons([rendered["everything"]]) if name == "nsqd"]
    timeout, seconds, penstock, *words = nsqd["lifecycle"]["preStop"]["exec"]["command"]
    assert (timeout, seconds, penstock) == ("timeout", "90", "penstock")
    words = [
        word.replace(":4151", ":1") for word in words if not word.startswith("--http-secret-file")
    ]
    done = subprocess.run(
        [sys.executable, "-m", "penstock.tools.main", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == FAILED, "wrong use, not an nsqd that is not there"
    assert "127.0.0.1:1" in done.stderr


def test_prometheus_finds_nsqd(rendered: dict[str, Any]) -> None:
    (monitor,) = of_kind("ServiceMonitor", rendered["everything"])
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    (service,) = [
        one
        for one in of_kind("Service", rendered["everything"])
        if wanted <= one["metadata"]["labels"].items()
    ]
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "nsqd"  # as in alerts.yaml
    ports = {one["name"] for one in service["spec"]["ports"]}
    assert {one["port"] for one in monitor["spec"]["endpoints"]} <= ports


def test_keda_asks_the_nsqlookupd_of_the_chart(rendered: dict[str, Any]) -> None:
    scaled = yaml.safe_load((DEPLOY / "keda" / "consumer.yaml").read_text())
    (trigger,) = scaled["spec"]["triggers"]
    host, port = trigger["metadata"]["nsqLookupdHTTPAddresses"].split(":")
    services = {one["metadata"]["name"]: one for one in of_kind("Service", rendered["alone"])}
    service = services[host.removesuffix(".default.svc.cluster.local")]
    assert {"name": "http", "port": int(port), "targetPort": "http"} in service["spec"]["ports"]

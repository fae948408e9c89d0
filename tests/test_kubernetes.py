"""The Kubernetes manifests, rendered by helm and kustomize: they agree, fit the schemas, and start the real server."""

import contextlib
import fnmatch
import re
import ssl
import subprocess
import urllib.error
import urllib.request

import kubernetes_validate
import pytest
import yaml
from deploy.kubernetes import render
from tools.kubernetes_programs import program
from torch.distributed.run import get_args_parser

from tests.certificates import Credentials
from tests.planner_server import free_address, wait_for
from tests.postgres_server import PostgresServer
from tests.processes import ROOT
from tests.rank_training import RankTraining
from tidetape.launch import Settings

# Each kustomization of the server, and the chart's values that must make the same.
SAME = {
    "base": [],
    "overlays/monitoring": ["--values=values-monitoring.yaml"],
    "overlays/postgresql": ["--values=values-postgresql.yaml"],
}
# Of the oldest and the newest Kubernetes that the schemas are there for.
VERSIONS = ("1.25", "1.37")
# The schemas of these kinds come with the Prometheus operator, not with Kubernetes.
FOREIGN_KINDS = {"ServiceMonitor", "PrometheusRule"}


def objects(text):
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}


def kustomized(name):
    command = [program("kubectl"), "kustomize", render.FOLDER / name]
    return objects(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)


def server_pod(manifests):
    return manifests["StatefulSet", "tidetape-server"]["spec"]["template"]


def fits(selector, labels):
    return selector.items() <= labels.items()


def test_the_files_are_what_the_chart_makes():
    for path, text in render.texts().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.relative_to(ROOT)} is old: run make manifests"


@pytest.mark.parametrize("name", SAME)
def test_chart_and_kustomization_make_the_same(name):
    assert kustomized(name) == objects(render.from_chart(*SAME[name]))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", [*SAME, "training"])
def test_every_object_fits_its_schema(name, version):
    kinds = set()
    for (kind, _), manifest in kustomized(name).items():
        kinds.add(kind)
        if kind not in FOREIGN_KINDS:
            kubernetes_validate.validate(manifest, version, strict=True)
    assert "Service" in kinds


def helm_refuses(*arguments):
    with pytest.raises(subprocess.CalledProcessError) as error:
        render.from_chart(*arguments)
    return error.value.stderr


def test_helm_takes_the_chart_and_refuses_values_that_cannot_be():
    lint = subprocess.run(
        [program("helm"), "lint", "--strict", render.FOLDER / "chart"], capture_output=True, text=True, timeout=60
    )
    assert lint.returncode == 0, lint.stdout
    # Two servers on one SQLite file.
    assert "/replicas" in helm_refuses("--set=replicas=2")
    assert "passwort" in helm_refuses("--set=store.postgresql.passwort=x")
    # A password on the command line.
    assert "/store/postgresql/url" in helm_refuses("--set=store.postgresql.url=postgresql://tidetape:secret@db/tidetape")


def test_versions_and_users_agree_with_the_server_and_its_image():
    version = re.search(r'kVersion\[\] = "(.*)"', (ROOT / "server" / "common" / "version.h").read_text())[1]
    chart = yaml.safe_load((render.FOLDER / "chart" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    pod = server_pod(kustomized("base"))["spec"]
    containerfile = (ROOT / "deploy" / "container" / "Containerfile").read_text()
    assert f"USER {pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}\n" in containerfile


@pytest.mark.parametrize("name", SAME)
def test_selectors_and_ports_lead_to_the_server(name):
    manifests = kustomized(name)
    pod = server_pod(manifests)
    labels, ports = pod["metadata"]["labels"], {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    services = [manifest for (kind, _), manifest in manifests.items() if kind == "Service"]
    assert manifests["StatefulSet", "tidetape-server"]["spec"]["serviceName"] in {each["metadata"]["name"] for each in services}
    for service in services:
        assert fits(service["spec"]["selector"], labels)
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    policy = manifests["NetworkPolicy", "tidetape-server"]["spec"]
    assert fits(policy["podSelector"]["matchLabels"], labels)
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == ports
    assert fits(manifests["PodDisruptionBudget", "tidetape-server"]["spec"]["selector"]["matchLabels"], labels)
    if name == "overlays/monitoring":
        monitor = manifests["ServiceMonitor", "tidetape-server"]["spec"]
        (endpoint,) = monitor["endpoints"]
        scraped = [
            service
            for service in services
            if fits(monitor["selector"]["matchLabels"], service["metadata"]["labels"])
            and endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        ]
        assert len(scraped) == 1, "each server is scraped once"
        (rename,) = endpoint["relabelings"]
        (shipped,) = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
        assert rename == {"targetLabel": "job", "replacement": shipped["job_name"]}
        assert endpoint["honorLabels"] is shipped["honor_labels"] is True
        rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "tidetape.rules.yml").read_text())
        assert manifests["PrometheusRule", "tidetape"]["spec"] == rules


def test_a_training_may_connect():
    (agents, _) = kustomized("base")["NetworkPolicy", "tidetape-server"]["spec"]["ingress"]
    training = kustomized("training")
    pod = training["Job", "train"]["spec"]["template"]
    assert fits(agents["from"][0]["podSelector"]["matchLabels"], pod["metadata"]["labels"])
    (container,) = pod["spec"]["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    settings = Settings.from_environment(environment)
    settings.check()
    service = kustomized("base")["Service", "tidetape-server"]
    port = next(each["port"] for each in service["spec"]["ports"] if each["name"] == "grpc")
    assert settings.planner == f"{service['metadata']['name']}:{port}"
    guide = (ROOT / "docs" / "operations.md").read_text()
    own_jobs = re.search(r"^\$ line train agent '(.*)'", guide, re.MULTILINE)[1]
    assert fnmatch.fnmatchcase(environment["TIDETAPE_JOB"], own_jobs)
    # torchrun's own parser, with the number that the job's controller gives.
    words = [word.replace("$(JOB_COMPLETION_INDEX)", "1") for word in container["command"][1:]]
    options = get_args_parser().parse_args(words)
    assert (options.nnodes, options.node_rank, options.training_script) == ("2", 1, "tidetape.launch")
    job, found = training["Job", "train"]["spec"], training["Service", "train"]
    assert int(options.nnodes) == job["completions"] == job["parallelism"]
    assert options.rdzv_endpoint == f"train-0.{pod['spec']['subdomain']}:{found['spec']['ports'][0]['port']}"
    assert pod["spec"]["subdomain"] == found["metadata"]["name"]


def test_the_guides_certificate_has_the_names_that_servers_are_called_by():
    guide = (ROOT / "docs" / "operations.md").read_text()
    names = re.findall(r"DNS:([^,\s]+)", re.search(r"^\$ names=(.*)$", guide, re.MULTILINE)[1])
    manifests = kustomized("overlays/postgresql")
    (told,) = [word for word in server_pod(manifests)["spec"]["containers"][0]["args"] if word.startswith("--advertise=")]
    told = told.removeprefix("--advertise=").replace("$(POD_NAME)", "tidetape-server-0").replace("$(POD_NAMESPACE)", "default")
    host, port = told.split(":")
    peers = manifests["Service", "tidetape-server-peers"]
    assert host == f"tidetape-server-0.{peers['metadata']['name']}.default.svc"
    assert int(port) == peers["spec"]["ports"][0]["port"]
    (monitor,) = kustomized("overlays/monitoring")["ServiceMonitor", "tidetape-server"]["spec"]["endpoints"]
    for name in (host, monitor["tlsConfig"]["serverName"], manifests["Service", "tidetape-server"]["metadata"]["name"]):
        assert any(fnmatch.fnmatchcase(name, pattern) for pattern in names), name


def secrets(value):
    """Names of the Secrets that a manifest refers to."""
    if isinstance(value, list):
        return set().union(*map(secrets, value))
    if not isinstance(value, dict):
        return set()
    if value.keys() == {"name", "key"}:
        return {value["name"]}
    return {value["secretName"]} if "secretName" in value else set().union(*map(secrets, value.values()))


def test_the_guide_tells_how_to_make_each_secret():
    guide = (ROOT / "docs" / "operations.md").read_text()
    made = set(re.findall(r"^\$ kubectl create secret (?:generic|tls) ([\w-]+) ", guide, re.MULTILINE))
    needed = set().union(*(secrets(manifest) for name in [*SAME, "training"] for manifest in kustomized(name).values()))
    assert made == needed


class Pod:
    """Runs the container of a rendered StatefulSet on this machine: its own arguments, with this machine's files and addresses."""

    def __init__(self, manifests, server_program, credentials, folder, environment, number=0):
        self.container = server_pod(manifests)["spec"]["containers"][0]
        self.address, self.http_address = free_address(), free_address()
        places = {
            "0.0.0.0:50551": self.address,
            "0.0.0.0:50552": self.http_address,
            "/etc/tidetape/tls/tls.crt": credentials.certificate,
            "/etc/tidetape/tls/tls.key": credentials.key,
            "/etc/tidetape/tokens/tokens": credentials.tokens,
            "/var/lib/tidetape": folder / "store",
            "$(POD_NAME)": f"tidetape-server-{number}",
            "$(POD_NAMESPACE)": "default",
        }
        arguments = []
        for argument in self.container["args"]:
            for place, here in places.items():
                argument = argument.replace(place, str(here))
            arguments.append(argument)
        self.process = subprocess.Popen([server_program, *arguments], env=environment)

    def probe(self, which):
        """The status of a probe, which looks at no certificate; None where nothing answers."""
        request = self.container[which]["httpGet"]
        assert (request["scheme"], request["port"]) == ("HTTPS", "http")
        return self.get(request["path"])

    def get(self, path):
        try:
            context = ssl._create_unverified_context()
            with urllib.request.urlopen(f"https://{self.http_address}{path}", timeout=10, context=context) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def credentials(tmp_path):
    return Credentials(tmp_path / "credentials", {"trainer": "agent", "ada": "operator"})


def test_the_pods_command_serves_a_training(server_program, credentials, tmp_path, monkeypatch):
    with Pod(kustomized("base"), server_program, credentials, tmp_path, {}) as pod:
        wait_for("readiness", lambda: pod.probe("readinessProbe") == 200, 20)
        assert pod.probe("livenessProbe") == 200
        monkeypatch.setenv("TIDETAPE_TLS_CA", str(credentials.certificate))
        monkeypatch.setenv("TIDETAPE_TOKEN_FILE", str(credentials.token("trainer")))
        with RankTraining(tmp_path, pod.address, "90%") as training:
            wait_for("the first plan", lambda: training.newest_generation() > 0, 120)
            training.finish()


def test_pods_on_one_database_stand_by_for_each_other(server_program, tidetapectl, credentials, tmp_path):
    """One that stands by counts as ready, since an update of the servers waits for each of them. It tells the leader's name."""
    manifests = kustomized("overlays/postgresql")
    with PostgresServer() as database, contextlib.ExitStack() as running:
        pods = [Pod(manifests, server_program, credentials, tmp_path, database.environment, number) for number in range(2)]
        for pod in pods:
            running.enter_context(pod)
        wait_for("probes", lambda: all(pod.probe("readinessProbe") == 200 for pod in pods), 20)
        wait_for("a leader", lambda: {pod.get("/readyz") for pod in pods} == {200, 503}, 20)
        leader, other = sorted(pods, key=lambda pod: pod.get("/readyz"))
        security = ["--tls-ca", credentials.certificate, "--token-file", credentials.token("ada")]
        ask = [tidetapectl, "--server", other.address, *security, "jobs"]
        told = subprocess.run(ask, capture_output=True, text=True, timeout=20)
        assert told.returncode != 0
        assert f"tidetape-server-{pods.index(leader)}.tidetape-server-peers.default.svc:50551" in told.stderr
        leader.process.kill()
        wait_for("the other to lead", lambda: other.get("/readyz") == 200, 20)

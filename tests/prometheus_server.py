"""A real Prometheus with the configuration that deploy/ ships, but faster and for one server."""

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import yaml

from tests.planner_server import free_address
from tests.processes import ROOT

SHIPPED = ROOT / "deploy" / "prometheus"


class PrometheusServer:
    """Use as a context: it scrapes `target` every second while inside. `folder` is the test's own."""

    def __init__(self, folder, target):
        self._folder = folder / "prometheus"
        self._folder.mkdir()
        self._address = free_address()
        configuration = yaml.safe_load((SHIPPED / "prometheus.yml").read_text())
        configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        configuration["rule_files"] = [str(SHIPPED / name) for name in configuration["rule_files"]]
        (scrape,) = configuration["scrape_configs"]
        scrape["static_configs"] = [{"targets": [target]}]
        (self._folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))

    def __enter__(self):
        flags = [f"--config.file={self._folder}/prometheus.yml", f"--storage.tsdb.path={self._folder}/data"]
        with open(self._folder / "log", "w", encoding="utf-8") as log:
            self._process = subprocess.Popen(["prometheus", *flags, f"--web.listen-address={self._address}"], stderr=log)
        return self

    def __exit__(self, *error):
        self._process.kill()
        self._process.wait()

    def query(self, expression):
        """The series of an instant query's answer; None while Prometheus starts. An error in the query fails the test."""
        return self._get("query", query=expression, field="result")

    def label_values(self, metric, label):
        return self._get(f"label/{label}/values", field=None, **{"match[]": metric})

    def _get(self, path, field, **parameters):
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                data = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        except urllib.error.URLError:
            assert self._process.poll() is None, (self._folder / "log").read_text()
            return None
        return data[field] if field else data

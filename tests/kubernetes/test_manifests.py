"""test_manifests.py: the shipped manifests against Kubernetes' schemas, and against the rules of Pod Security `restricted`."""

import re
import shutil
import subprocess
import sys

import pytest
import yaml
from pod import MANIFESTS, ROOT, documents, with_sidecar

sys.path.insert(0, str(ROOT / "packaging"))
from version import Table  # noqa: E402

EXAMPLE, DAEMON_SET = "example/application.yaml", "node/daemonset.yaml"
# Volumes that `restricted` allows.
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def pod_of(name):
    return (with_sidecar(documents(name)[0]) if name == EXAMPLE else documents(name)[0])["spec"]["template"]["spec"]


def complaints(spec):
    """What the admission of a namespace with `pod-security.kubernetes.io/enforce: restricted` would refuse."""
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield f"{name}"
    for volume in spec.get("volumes", []):
        yield from (f"volume {volume['name']}: {kind}" for kind in set(volume) - {"name"} - VOLUMES)
    outer = spec.get("securityContext", {})
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        security = {**outer, **container.get("securityContext", {})}
        capabilities = security.get("capabilities", {})
        name = container["name"]
        if security.get("privileged"):
            yield f"{name}: privileged"
        if security.get("allowPrivilegeEscalation") is not False:
            yield f"{name}: allowPrivilegeEscalation"
        if capabilities.get("drop") != ["ALL"]:
            yield f"{name}: does not drop ALL"
        if set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
            yield f"{name}: adds {capabilities['add']}"
        if security.get("runAsNonRoot") is not True or security.get("runAsUser") == 0:
            yield f"{name}: may be root"
        if security.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"{name}: seccompProfile"
        if security.get("procMount", "Default") != "Default" or "hostPort" in str(container.get("ports")):
            yield f"{name}: procMount or hostPort"


def test_the_sidecar_holds_the_rules_of_pod_security_restricted():
    assert list(complaints(pod_of(EXAMPLE))) == []


def test_the_daemon_set_breaks_those_rules_only_for_what_it_says():
    found = set(complaints(pod_of(DAEMON_SET)))
    assert found == {"volume socket: hostPath", "folder: adds ['CHOWN']", "folder: may be root"}
    head = (MANIFESTS / DAEMON_SET).read_text().partition("apiVersion")[0]
    assert "hostPath" in head and "CHOWN" in head


@pytest.mark.parametrize("name", [EXAMPLE, DAEMON_SET])
def test_each_container_of_ours_has_probes_that_are_ratelimitctl_itself_and_resources(name):
    spec = pod_of(name)
    ours = [container for container in [*spec.get("initContainers", []), *spec["containers"]] if container["name"] == "ratelimitd"]
    assert len(ours) == 1
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert ours[0][kind]["exec"]["command"] == ["ratelimitctl", "ping"]
    assert ours[0]["resources"]["requests"] and ours[0]["resources"]["limits"]["memory"]
    assert ours[0]["securityContext"]["readOnlyRootFilesystem"] and ours[0]["securityContext"]["runAsUser"] == 7429


def test_the_manifests_fit_the_schemas():
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    checked = 0
    for path in [MANIFESTS / EXAMPLE, MANIFESTS / "example/configmap.yaml", MANIFESTS / DAEMON_SET, MANIFESTS / "node/configmap.yaml"]:
        for document in yaml.safe_load_all(path.read_text()):
            document = with_sidecar(document) if document["kind"] == "Deployment" else document
            kubernetes_validate.validate(document, "1.34", strict=True)
            checked += 1
    assert checked == 4  # PodMonitor is the Prometheus operator's, whose schema is not in the package


@pytest.mark.parametrize("name", ["example/configmap.yaml", "node/configmap.yaml"])
def test_the_configurations_are_correct(name, image):
    file = image.rootfs / "tmp/ratelimitd.yaml"
    file.write_text(documents(name)[0]["data"]["ratelimitd.yaml"])
    done = subprocess.run(["chroot", image.rootfs, "/usr/bin/ratelimitd", "--check-config", "-c", "/tmp/ratelimitd.yaml"],
                          capture_output=True, text=True)
    file.unlink()
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr


def test_kustomize_merges_the_component_as_the_pod_test_does():
    version = re.search(r"Kustomize Version: v(\d+)", subprocess.run(["kubectl", "version", "--client"], capture_output=True,
                                                                     text=True).stdout) if shutil.which("kubectl") else None
    if not version or int(version[1]) < 5:
        pytest.skip("no kubectl with kustomize 5")
    rendered = yaml.safe_load_all(subprocess.run(["kubectl", "kustomize", MANIFESTS / "example"], check=True, capture_output=True,
                                                 text=True).stdout)
    deployment = next(document for document in rendered if document["kind"] == "Deployment")
    ours = with_sidecar(documents(EXAMPLE)[0])
    for container in ours["spec"]["template"]["spec"]["initContainers"]:
        container["image"] += f":{Table().values['version']}"
    assert deployment == ours


def test_the_metrics_port_leads_to_the_job_that_the_alerts_ask_for():
    monitor = documents("example/podmonitor.yaml")[0]["spec"]
    endpoint = monitor["podMetricsEndpoints"][0]
    ports = [port["name"] for container in pod_of(EXAMPLE)["initContainers"] for port in container.get("ports", [])]
    assert endpoint["port"] in ports
    job = re.search(r'up\{job="(\w+)"\}', (ROOT / "deploy/prometheus/ratelimitd.rules.yml").read_text())[1]
    assert {"targetLabel": "job", "replacement": job} in endpoint["relabelings"]
    assert monitor["selector"]["matchLabels"].items() <= documents(EXAMPLE)[0]["spec"]["template"]["metadata"]["labels"].items()

"""test_pod.py: the shipped manifests, run as kubelet would: who is served, who is not, what a changed ConfigMap does, and the end."""

import copy
import os
from pathlib import Path

import pytest
import yaml
from harness import eventually
from pod import GRACE_S, Image, Pod, documents, with_sidecar

SOCKET = "/run/ratelimitd/ratelimitd.sock"


def configuration(name="example/configmap.yaml"):
    return documents(name)[0]["data"]


@pytest.fixture
def play(image, application):
    """A pod of the example, or of a template; closed at the end."""
    pods = []

    def start(change=None, template=None, config=None, host=None):
        spec = copy.deepcopy(template or with_sidecar(documents("example/application.yaml")[0])["spec"]["template"]["spec"])
        if change:
            change(spec)
        chown = Image(Path(os.environ["BARE"])) if "BARE" in os.environ else application
        pod = Pod(spec, {"registry.example/ratelimitd": image, "registry.example/application": application,
                         "registry.example/busybox": chown},
                  {"ratelimitd": config or configuration(), "ratelimitd-node": configuration("node/configmap.yaml")}, host)
        pods.append(pod)
        pod.__enter__()
        pod.start()
        return pod

    yield start
    for pod in pods:
        pod.close()


def check(pod, *more, **options):
    return pod.exec("application", "ratelimitctl", *more, "check", "api", "alice", **options)


def sidecar_of(spec):
    return next(container for container in spec["initContainers"] if container["name"] == "ratelimitd")


def test_an_application_of_another_uid_gets_its_decision_and_cannot_open_the_control_socket(play):
    pod = play()
    assert pod.events.index(("ready", "ratelimitd")) < pod.events.index(("started", "application"))
    assert "remaining 19/20" in check(pod).stdout
    refused = pod.exec("application", "ratelimitctl", "-s", f"{SOCKET}.control", "stats")
    assert refused.returncode == 3 and "ermission denied" in refused.stderr
    administrator = pod.exec("ratelimitd", "ratelimitctl", "-s", f"{SOCKET}.control", "stats")
    assert administrator.returncode == 0, administrator.stderr


def test_an_application_with_the_daemons_uid_would_be_an_administrator(play):
    """Why the image has a uid of its own, and the manifest says that no other container may have it."""
    pod = play()
    assert pod.exec("application", "ratelimitctl", "-s", f"{SOCKET}.control", "stats", uid=7429).returncode == 0


def test_a_swapped_config_map_takes_effect_and_a_broken_one_changes_nothing(play):
    data = configuration()
    quick = {"ratelimitd.yaml": data["ratelimitd.yaml"].replace("watch: 10s", "watch: 1s")}
    assert quick != data
    pod = play(config=quick)
    assert "19/20" in check(pod).stdout
    pod.swap("ratelimitd", {"ratelimitd.yaml": quick["ratelimitd.yaml"].replace("burst: 20", "burst: 30")})
    eventually(lambda: "/30" in check(pod).stdout, "the new limit is in force")
    pod.swap("ratelimitd", {"ratelimitd.yaml": quick["ratelimitd.yaml"].replace("burst: 20", "burst: many")})
    eventually(lambda: "burst" in pod.log("ratelimitd").rpartition("30")[2], "the mistake is in the log")
    assert "/30" in check(pod).stdout


@pytest.mark.parametrize("drain", ["", "drain: {timeout: 1h}\n"], ids=["as shipped", "longer than the pod has time"])
def test_the_sidecar_ends_after_the_application_and_needs_no_timeout(play, drain):
    """A drain that waited for drain.timeout would report what it waited for, and with an hour kubelet would have to kill."""
    pod = play(config={"ratelimitd.yaml": configuration()["ratelimitd.yaml"] + drain})
    check(pod)
    assert pod.stop() == [("application", 0), ("ratelimitd", 0)]
    assert not [name for event, name in pod.events if event == "killed"]
    log = pod.log("ratelimitd")
    assert "SIGTERM: draining, with 0 checks in flight" in log
    assert "timed out" not in log and "could not be given back" not in log and "again: ending at once" not in log


def test_the_pod_has_more_time_to_end_than_the_sidecar_needs_at_most(play):
    pod = play()
    shown = yaml.safe_load(pod.exec("ratelimitd", "ratelimitd", "-c", "/etc/ratelimitd/ratelimitd.yaml", "--print-config").stdout)
    assert int(shown["drain"]["timeout"].removesuffix("s")) < pod.spec.get("terminationGracePeriodSeconds", GRACE_S)


def test_a_plain_empty_dir_is_refused_with_the_way_out(play):
    def plain(spec):
        next(volume for volume in spec["volumes"] if volume["name"] == "ratelimitd-socket")["emptyDir"] = {}

    with pytest.raises(RuntimeError, match="medium: Memory"):
        play(plain)


def test_the_daemon_may_run_as_another_uid(play):
    pod = play(lambda spec: sidecar_of(spec)["securityContext"].update(runAsUser=12345, runAsGroup=12345))
    assert check(pod).returncode == 0


def test_a_group_may_decide_who_asks(play):
    """fsGroup and the default mode, 0660, in place of 0666."""
    data = {"ratelimitd.yaml": configuration()["ratelimitd.yaml"].replace('"0666"', '"0660"')}
    pod = play(lambda spec: spec.update(securityContext={"fsGroup": 2000}), config=data)
    done = check(pod)
    assert done.returncode == 0, done.stderr
    without = play(config=data)
    assert "ermission denied" in check(without).stderr


def test_nothing_is_written_but_the_sockets(play, image):
    before = sorted(image.rootfs.rglob("*"))
    pod = play()
    assert check(pod).returncode == 0
    pod.stop()
    assert sorted(image.rootfs.rglob("*")) == before


def test_the_daemon_of_a_node_serves_its_pods_through_a_folder_that_is_prepared_for_it(play, tmp_path):
    tmp_path.chmod(0o755)
    if "BARE" not in os.environ:
        pytest.skip("no image with chown")
    daemon = play(template=documents("node/daemonset.yaml")[0]["spec"]["template"]["spec"], host=tmp_path)
    assert (tmp_path / "run/ratelimitd").stat().st_uid == 7429

    def as_neighbour(spec):
        spec["volumes"] = [{"name": "socket", "hostPath": {"path": "/run/ratelimitd", "type": "Directory"}}]
        spec["containers"][0]["volumeMounts"] = [{"name": "socket", "mountPath": "/run/ratelimitd", "readOnly": True}]

    template = documents("example/application.yaml")[0]["spec"]["template"]["spec"]
    neighbour = play(as_neighbour, template=template, host=tmp_path)
    assert check(neighbour).returncode == 0
    assert "ermission denied" in neighbour.exec("application", "ratelimitctl", "-s", f"{SOCKET}.control", "stats").stderr
    assert daemon.stop()[0][1] == 0

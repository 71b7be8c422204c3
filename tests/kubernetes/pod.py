"""pod.py: runs the pod of a manifest as kubelet would, with crun in place of a cluster.

It takes the shipped manifest, with the component of deploy/kubernetes/sidecar merged in, and makes what kubelet makes of it:
volumes (an emptyDir in memory is a tmpfs, 01777, otherwise a folder, 0777; with an fsGroup they are that group's, and setgid; a
ConfigMap is a folder of links behind `..data`), users and groups, read-only root and mounts, capabilities. Containers start in
order: an init container ends before the next begins, a sidecar passes its startup probe. They are stopped in kubelet's order, too:
first the containers, then the sidecars, the last one first; what outlives the pod's time to end is killed.

    with Pod(template, {"registry.example/ratelimitd": Image(rootfs, config)}, config_maps={"ratelimitd": {...}}) as pod:
        pod.start()
        pod.exec("application", "ratelimitctl", "check", "api", "alice")

crun gives a container's user what it has as standard input, so this is a pipe here: /dev/null is the machine's.

All of it lives in namespaces of its own with a network of its own, as a pod does. It needs root and crun.
"""

import copy
import json
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
MANIFESTS = ROOT / "deploy" / "kubernetes"
PATIENCE_S = 30.0
GRACE_S = 30  # of a pod whose manifest has none
CAPABILITIES = ("bounding", "effective", "permitted", "inheritable", "ambient")


@dataclass
class Image:
    rootfs: Path
    config: dict = field(default_factory=dict)  # the `config` of an OCI image


def documents(*names):
    return [document for name in names for document in yaml.safe_load_all((MANIFESTS / name).read_text())]


def with_sidecar(deployment):
    """A Deployment with the component: what kustomize makes of sidecar/. test_manifests.py compares both."""
    deployment = copy.deepcopy(deployment)
    spec = deployment["spec"]["template"]["spec"]
    patch = documents("sidecar/ratelimitd.yaml")[0]["spec"]["template"]["spec"]
    spec["volumes"] = patch["volumes"] + spec.get("volumes", [])
    spec["initContainers"] = patch["initContainers"] + spec.get("initContainers", [])
    mount = patch["initContainers"][0]["volumeMounts"][0]
    for container in spec["containers"]:
        container.setdefault("volumeMounts", []).append({**mount, "readOnly": True})
    return deployment


class Pod:
    def __init__(self, spec, images, config_maps=None, host=None):
        """`host`: a folder in place of the node's root, for hostPath."""
        self.spec, self.images, self.config_maps = spec, images, config_maps or {}
        self.security = spec.get("securityContext", {})
        self.folder = Path(tempfile.mkdtemp(prefix="pod."))
        self.host = host or self.folder / "host"
        self.box = None
        self.running, self.logs, self.generation = [], {}, 0
        self.events = []  # ("started" | "ready" | "killed" | "ended", container)

    # ---- the life of a pod

    def __enter__(self):
        self._open()
        return self

    def __exit__(self, *exc):
        self.close()

    def _open(self):
        """A process that keeps the namespaces; crun needs a cgroup2 there and a /run of its own."""
        script = ("mount --make-rprivate / && mount -t tmpfs tmpfs /run && mount -t cgroup2 cgroup2 /sys/fs/cgroup && "
                  "ip link set lo up; echo ready; exec sleep 1000")
        self.box = subprocess.Popen(["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child",
                                     "--mount-proc", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        if self.box.stdout.readline() != "ready\n":
            raise RuntimeError("the pod's namespaces could not be made")
        children = Path(f"/proc/{self.box.pid}/task/{self.box.pid}/children").read_text().split()
        self.inside = ["nsenter", "--target", children[0], "--mount", "--pid", "--net", "--ipc", "--uts"]
        for volume in self.spec.get("volumes", []):
            self._make(volume)

    def start(self):
        for container in self.spec.get("initContainers", []):
            self._create(container)
            if container.get("restartPolicy") == "Always":
                self._wait_for_probe(container, "startupProbe")
            else:
                code = self.ended(container["name"])
                if code:
                    raise RuntimeError(f"{container['name']} ended with {code}: {self.log(container['name'])}")
                self.running.remove(container["name"])
        for container in self.spec["containers"]:
            self._create(container)
        for container in self.containers():
            self._wait_for_probe(container, "readinessProbe")

    def stop(self):
        """TERM to the containers, then to the sidecars, the last one first; (name, exit status) in that order."""
        ends = []
        own = [container["name"] for container in self.spec["containers"]]
        sidecars = [name for name in self.running if name not in own]
        deadline = time.monotonic() + self.spec.get("terminationGracePeriodSeconds", GRACE_S)
        for name in [*[name for name in self.running if name in own], *reversed(sidecars)]:
            self._crun("kill", name, "TERM")
            try:
                self.logs[name][0].wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._crun("kill", name, "KILL", check=False)
                self.events.append(("killed", name))
            ends.append((name, self.ended(name)))
        self.running = []
        return ends

    def close(self):
        for name in list(self.logs):
            self._crun("delete", "-f", name, check=False)
            self.logs[name][0].wait(PATIENCE_S)
        self.box.kill()
        self.box.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- what tests ask

    def containers(self):
        return [container for kind in ("initContainers", "containers") for container in self.spec.get(kind, [])
                if container["name"] in self.running]

    def exec(self, name, *argv, uid=None):
        """As `kubectl exec`: as the container's user."""
        container = next(container for container in self.containers() if container["name"] == name)
        process = self.folder / f"exec-{name}.json"
        process.write_text(json.dumps(self._process(container, argv, **({"uid": uid} if uid else {}))))
        return subprocess.run([*self.inside, "crun", "exec", "--process", process, name], capture_output=True, text=True, input="",
                              timeout=PATIENCE_S)

    def log(self, name):
        return self.logs[name][1].read_text(errors="replace")

    def ended(self, name):
        code = self.logs[name][0].wait(PATIENCE_S)
        self.events.append(("ended", name))
        return code

    def swap(self, config_map, data):
        """A changed ConfigMap, as kubelet brings it in: a new folder, and one rename of the link to it."""
        self.config_maps[config_map] = data
        for volume in self.spec.get("volumes", []):
            if volume.get("configMap", {}).get("name") == config_map:
                self._write(self.folder / volume["name"], data)

    # ---- volumes

    def _make(self, volume):
        path = self.folder / volume["name"]
        group = self.security.get("fsGroup")
        if "emptyDir" in volume:
            path.mkdir()
            mode = 0o777
            if volume["emptyDir"].get("medium") == "Memory":
                self._must("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", path)
                mode = 0o1777
            if group is not None:
                mode |= 0o2000
                self._must("chown", f"0:{group}", path)
            self._must("chmod", f"{mode:o}", path)
        elif "configMap" in volume:
            path.mkdir(mode=0o755)
            path.chmod(0o755)
            self._write(path, self.config_maps[volume["configMap"]["name"]])
        elif "hostPath" in volume:
            path = self._host_path(volume)
            if volume["hostPath"].get("type") == "DirectoryOrCreate":
                path.mkdir(mode=0o755, parents=True, exist_ok=True)
        else:
            raise NotImplementedError(volume)

    def _host_path(self, volume):
        return self.host / volume["hostPath"]["path"].lstrip("/")

    def _write(self, folder, data):
        self.generation += 1
        current = f"..2026_11_28.{self.generation}"
        (folder / current).mkdir(mode=0o755)
        (folder / current).chmod(0o755)
        for name, text in data.items():
            (folder / current / name).write_text(text)
            (folder / current / name).chmod(0o644)
        os.symlink(current, folder / "..data_tmp")
        os.rename(folder / "..data_tmp", folder / "..data")
        for name in data:
            if not (folder / name).is_symlink():
                os.symlink(f"..data/{name}", folder / name)

    # ---- containers

    def _user(self, container):
        security = {**self.security, **container.get("securityContext", {})}
        image = self.images[container["image"].partition(":")[0]].config.get("User", "0:0").split(":")
        uid = security.get("runAsUser", int(image[0]))
        if security.get("runAsNonRoot") and uid == 0:
            raise RuntimeError(f"{container['name']}: runAsNonRoot, and the user is root")
        groups = [*self.security.get("supplementalGroups", []), *filter(None, [self.security.get("fsGroup")])]
        return {"uid": uid, "gid": security.get("runAsGroup", int(image[-1]) if "runAsUser" not in security else 0),
                "additionalGids": groups}

    def _process(self, container, argv, **user):
        image = self.images[container["image"].partition(":")[0]]
        security = container.get("securityContext", {})
        assert security["capabilities"]["drop"] == ["ALL"], "only what drops all capabilities is played here"
        added = [f"CAP_{capability}" for capability in security["capabilities"].get("add", [])]
        return {"user": {**self._user(container), **user}, "args": list(argv), "cwd": "/",
                "env": image.config.get("Env", ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]),
                "noNewPrivileges": security.get("allowPrivilegeEscalation") is False,
                "capabilities": {kind: added for kind in CAPABILITIES}}

    def _create(self, container):
        name = container["name"]
        image = self.images[container["image"].partition(":")[0]]
        command = container.get("command") or image.config.get("Entrypoint", [])
        args = container.get("args", [] if container.get("command") else image.config.get("Cmd") or [])
        volumes = {volume["name"]: volume for volume in self.spec.get("volumes", [])}
        mounts = [{"destination": mount["mountPath"], "type": "bind",
                   "source": str(self._host_path(volumes[mount["name"]]) if "hostPath" in volumes[mount["name"]]
                                 else self.folder / mount["name"]),
                   "options": ["rbind", "ro" if mount.get("readOnly") else "rw"]} for mount in container.get("volumeMounts", [])]
        bundle = self.folder / f"bundle-{name}"
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps({
            "ociVersion": "1.0.2",
            "process": self._process(container, [*command, *args]),
            "root": {"path": str(image.rootfs), "readonly": container.get("securityContext", {}).get("readOnlyRootFilesystem", False)},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                       {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}, *mounts],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount")]},  # network, ipc and uts are the pod's
        }))
        log = self.folder / f"{name}.log"
        with open(log, "wb") as out:
            process = subprocess.Popen([*self.inside, "crun", "--cgroup-manager=disabled", "run", "-b", str(bundle), name],
                                       stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT)
        process.stdin.close()
        self.logs[name] = process, log
        self.running.append(name)
        self.events.append(("started", name))
        deadline = time.monotonic() + PATIENCE_S  # until it can be asked
        while process.poll() is None and time.monotonic() < deadline and self._crun("state", name, check=False).returncode:
            time.sleep(0.05)

    def _wait_for_probe(self, container, kind):
        probe = container.get(kind)
        if not probe:
            return
        name, deadline, said = container["name"], time.monotonic() + PATIENCE_S, ""
        while time.monotonic() < deadline:
            if self.logs[name][0].poll() is not None:
                raise RuntimeError(f"{name} ended with {self.logs[name][0].returncode}: {self.log(name)}")
            done = self.exec(name, *probe["exec"]["command"])
            if done.returncode == 0:
                self.events.append(("ready", name))
                return
            said = done.stderr
            time.sleep(0.1)
        raise RuntimeError(f"{name} did not pass its {kind}: {said}{self.log(name)}")

    # ---- helpers

    def _must(self, *argv):
        subprocess.run([*self.inside, *map(str, argv)], check=True, stdin=subprocess.DEVNULL)

    def _crun(self, *argv, check=True):
        return subprocess.run([*self.inside, "crun", *argv], check=check, stdin=subprocess.DEVNULL, capture_output=True)

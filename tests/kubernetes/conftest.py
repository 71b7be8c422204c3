import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "integration")]
from pod import ROOT, Image  # noqa: E402

LAYOUT = ROOT / "build" / "image"
IDLE = "#include <signal.h>\n#include <unistd.h>\nstatic void end(int s) { _exit(s != SIGTERM); }\n" \
       "int main(void) { signal(SIGTERM, end); for (;;) pause(); }\n"


@pytest.fixture(scope="session")
def image(tmp_path_factory):
    """The image that `./dev image` has written, unpacked."""
    if os.geteuid() != 0 or not shutil.which("crun") or not shutil.which("umoci"):
        pytest.skip("only root can run containers, with crun and umoci")
    manifest = json.loads((LAYOUT / "index.json").read_text())["manifests"][0]
    tag = manifest["annotations"]["org.opencontainers.image.ref.name"]
    bundle = tmp_path_factory.mktemp("image") / "bundle"
    subprocess.run(["umoci", "unpack", "--image", f"{LAYOUT}:{tag}", bundle], check=True, capture_output=True)
    for path in [bundle, *bundle.parents][:4]:
        path.chmod(0o755)
    read = lambda blob: json.loads((LAYOUT / "blobs" / blob["digest"].replace(":", "/")).read_text())  # noqa: E731
    return Image(bundle / "rootfs", read(read(manifest)["config"])["config"])


@pytest.fixture(scope="session")
def application(image, tmp_path_factory):
    """An application's image: ours with a program that does nothing until it is asked to end."""
    folder = tmp_path_factory.mktemp("application")
    for path in [folder, *folder.parents][:3]:
        path.chmod(0o755)
    subprocess.run(["cp", "-a", image.rootfs, folder / "rootfs"], check=True)
    (folder / "idle.c").write_text(IDLE)
    subprocess.run(["cc", "-static", "-o", folder / "rootfs/usr/bin/idle", folder / "idle.c"], check=True)
    return Image(folder / "rootfs", {"Entrypoint": ["/usr/bin/idle"], "Env": image.config["Env"]})

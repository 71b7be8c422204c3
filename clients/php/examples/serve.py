"""serve.py NAME: an example service under php-fpm, behind nginx, on 127.0.0.1:PORT; for the conformance suite."""

import os
import signal
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from gateways import EXTENSIONS, PHP_LIBRARIES, copying_log, start_php  # noqa: E402

name = sys.argv[1]
NEEDS = {"service": [], "laravel": ["Illuminate/autoload.php"], "symfony": ["Symfony/Bundle/FrameworkBundle/autoload.php"]}
missing = [path for path in NEEDS[name] if not any((Path(folder) / path).exists() for folder in PHP_LIBRARIES.split(":"))]
if missing:
    print(f"skip: this system has no package with {missing[0]}", flush=True)
    sys.exit(0)
with tempfile.TemporaryDirectory(prefix="rl-php-") as folder:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    extensions = EXTENSIONS if NEEDS[name] else ()  # the client itself needs none
    env = {"CACHE_DIR": f"{folder}/cache", "TMPDIR": folder, "XDG_RUNTIME_DIR": ""}
    nginx, fpm = start_php(Path(folder), HERE / f"{name}.php", env, port=int(os.environ["PORT"]), extensions=extensions)
    with copying_log(nginx):
        try:
            print("ready", flush=True)
            signal.sigwait({signal.SIGTERM, signal.SIGINT})
        finally:
            nginx.close()
            fpm.close()

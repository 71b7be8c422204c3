"""serve.py: the example service under php-fpm, behind nginx, on 127.0.0.1:PORT; for the conformance suite."""

import os
import signal
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from gateways import start_php  # noqa: E402

with tempfile.TemporaryDirectory(prefix="rl-php-") as folder:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    nginx, fpm = start_php(Path(folder), HERE / "service.php", {}, port=int(os.environ["PORT"]))
    try:
        print("ready", flush=True)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
    finally:
        nginx.close()
        fpm.close()

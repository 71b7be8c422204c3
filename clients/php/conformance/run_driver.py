"""run_driver.py: the driver under the PHP that the tests use."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from gateways import ENV, php  # noqa: E402

argv = php(HERE / "driver.php")
os.execve(argv[0], argv, ENV)

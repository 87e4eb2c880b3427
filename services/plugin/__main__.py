"""The plugin: the kubelet's calls. `python -m services.plugin`."""

import sys

from common.process import run_service
from services.plugin.service import start

if __name__ == "__main__":
    sys.exit(run_service("plugin", start))

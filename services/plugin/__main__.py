"""The plugin: the kubelet's calls. `python -m services.plugin`."""

import gc
import sys

if __name__ == "__main__":
    # what imports make stays: to look through it again and again would cost 13 ms; on again with the sockets
    gc.disable()

    from common.process import run_service
    from services.plugin.service import start

    sys.exit(run_service("plugin", start))

"""The reconciler: keeps every prepared claim's CDI spec true. `python -m services.reconciler`."""

import sys

from common.process import run_service
from services.reconciler.service import start

if __name__ == "__main__":
    sys.exit(run_service("reconciler", start))

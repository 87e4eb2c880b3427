"""From the inventory on the bus to ResourceSlices in the cluster."""

import sys

from common.process import run_service
from services.publisher.loop import start

if __name__ == "__main__":
    sys.exit(run_service("publisher", start))

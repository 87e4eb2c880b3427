"""The port to the cluster, and the choice of its adapter."""

from common.cluster.port import (
    Cause,
    ClaimMissing,
    ClaimReader,
    Cluster,
    ClusterUnavailable,
    OutOfDate,
    Raw,
    Refused,
    SliceEvent,
    SliceList,
)
from common.settings import Settings

__all__ = [
    "Cause",
    "ClaimMissing",
    "ClaimReader",
    "Cluster",
    "ClusterUnavailable",
    "OutOfDate",
    "Raw",
    "Refused",
    "SliceEvent",
    "SliceList",
    "connect",
]


def connect(settings: Settings) -> Cluster:
    """The cluster that the settings name. Does no I/O yet and imports no client library."""
    if settings.cluster == "local":
        from common.cluster.local import LocalCluster

        return LocalCluster(settings.local)
    from common.cluster.kube import KubernetesCluster

    return KubernetesCluster(settings.node_name, settings.driver, settings.pod_uid)

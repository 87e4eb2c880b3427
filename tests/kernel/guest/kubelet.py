"""The kubelet's side of the plugin's sockets, as far as the tests need it: register, prepare, unprepare."""

from pathlib import Path
from typing import Any

import grpc

from services.plugin.api import (
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    pluginregistration_pb2,
    pluginregistration_pb2_grpc,
)
from tests.waiting import eventually

CALL_S = 45.0  # kubernetes pkg/kubelet/cm/dra/plugin
CONNECT_S = 60.0
Claim = dict[str, str]  # namespace, name, uid


def register(kubelet_dir: str) -> str:
    """Wait for the plugin's registration socket, accept it; the path of its service socket."""
    folder = Path(kubelet_dir) / "plugins_registry"
    found = eventually(
        lambda: sorted(folder.glob("*.sock")), CONNECT_S, f"a registration socket in {folder}", step_s=0.1
    )
    with grpc.insecure_channel(f"unix:{found[-1]}") as channel:
        registration = pluginregistration_pb2_grpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
        info = registration.GetInfo(
            pluginregistration_pb2.InfoRequest(), timeout=CONNECT_S, wait_for_ready=True
        )
        status = pluginregistration_pb2.RegistrationStatus(plugin_registered=True)
        registration.NotifyRegistrationStatus(status, timeout=CALL_S)
    return str(info.endpoint)


def prepare(kubelet_dir: str, claims: list[Claim]) -> dict[str, Any]:
    """NodePrepareResources: per claim UID the error text, or the CDI ids by device."""
    with grpc.insecure_channel(f"unix:{register(kubelet_dir)}") as channel:
        request = dra_v1_pb2.NodePrepareResourcesRequest(
            claims=[dra_v1_pb2.Claim(**claim) for claim in claims]
        )
        stub = dra_v1_pb2_grpc.DRAPluginStub(channel)  # type: ignore[no-untyped-call]
        answer = stub.NodePrepareResources(request, timeout=CALL_S, wait_for_ready=True)
    return {
        uid: {
            "error": result.error,
            "devices": {device.device_name: list(device.cdi_device_ids) for device in result.devices},
        }
        for uid, result in answer.claims.items()
    }


def unprepare(kubelet_dir: str, claims: list[Claim]) -> dict[str, str]:
    """NodeUnprepareResources: per claim UID the error text, "" when it went well."""
    with grpc.insecure_channel(f"unix:{register(kubelet_dir)}") as channel:
        request = dra_v1_pb2.NodeUnprepareResourcesRequest(
            claims=[dra_v1_pb2.Claim(**claim) for claim in claims]
        )
        stub = dra_v1_pb2_grpc.DRAPluginStub(channel)  # type: ignore[no-untyped-call]
        answer = stub.NodeUnprepareResources(request, timeout=CALL_S, wait_for_ready=True)
    return {uid: result.error for uid, result in answer.claims.items()}

"""What a kubelet does with a claim: finds the plugin by its registration socket and calls it."""

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the library would write its own lines beside our one

import grpc  # reads the variable when it is imported

from common.claims import WHEN_BACK
from common.errors import MachineError, RequestError
from common.settings import Settings
from services.plugin.api import (
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    pluginregistration_pb2,
    pluginregistration_pb2_grpc,
)

FIND_S = 8.0  # a plugin that is just being started again answers within a second or two
INFO_S = 1.0  # the kubelet's own limit for GetInfo
CALL_S = 45.0  # the kubelet's own limit for prepare and unprepare


class Claim(NamedTuple):
    """How the kubelet names a claim."""

    namespace: str
    name: str
    uid: str


def prepare(settings: Settings, claim: Claim) -> list[str]:
    """Have the plugin prepare the claim; returns the CDI ids, sorted.

    Raises RequestError with the plugin's own sentence, MachineError when it does not answer.
    """
    answer = _call(settings, "NodePrepareResources", dra_v1_pb2.NodePrepareResourcesRequest, claim)
    return sorted({device_id for device in answer.devices for device_id in device.cdi_device_ids})


def unprepare(settings: Settings, claim: Claim) -> None:
    """Have the plugin unprepare the claim; one that is not prepared is fine. Raises as `prepare` does."""
    _call(settings, "NodeUnprepareResources", dra_v1_pb2.NodeUnprepareResourcesRequest, claim)


def _call(settings: Settings, method: str, request: Any, claim: Claim) -> Any:
    endpoint = _endpoint(settings)
    named = dra_v1_pb2.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid)
    with grpc.insecure_channel(f"unix:{endpoint}") as channel:
        stub = dra_v1_pb2_grpc.DRAPluginStub(channel)  # type: ignore[no-untyped-call]
        try:
            answer = getattr(stub, method)(request(claims=[named]), timeout=CALL_S)
        except grpc.RpcError as error:
            raise MachineError(
                f"the plugin gave no answer ({_words(error)}): look at liken status and try again"
            ) from error
    if claim.uid not in answer.claims:
        raise MachineError("the plugin's answer leaves this claim out: please report it")
    if answer.claims[claim.uid].error:
        raise RequestError(for_people(answer.claims[claim.uid].error))
    return answer.claims[claim.uid]


def for_people(error: str) -> str:
    """The plugin's sentence for somebody at a terminal: what a kubelet tries again by itself, they must."""
    return error.replace(WHEN_BACK, "plug it in, and claim it again")


def _endpoint(settings: Settings) -> str:
    """The service socket, asked of the registration sockets. Waits for a plugin that is starting."""
    deadline = time.monotonic() + FIND_S
    while True:
        for path in sorted(settings.registry_dir.glob("*.sock")):
            if endpoint := _endpoint_behind(path, settings.driver):
                return endpoint
        if time.monotonic() > deadline:
            raise MachineError(
                f"no plugin of {settings.driver} answers below {settings.registry_dir}: look at liken status"
            )
        time.sleep(0.1)


def _endpoint_behind(path: Path, driver: str) -> str:
    with grpc.insecure_channel(f"unix:{path}") as channel:
        try:
            stub = pluginregistration_pb2_grpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
            info = stub.GetInfo(pluginregistration_pb2.InfoRequest(), timeout=INFO_S)
        except grpc.RpcError:
            return ""  # a socket that a killed instance left behind
    return str(info.endpoint) if info.name == driver else ""


def _words(error: Any) -> str:
    details = error.details() if hasattr(error, "details") else str(error)
    return str(details)

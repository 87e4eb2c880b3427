"""Generate the Python code of the kubelet's interfaces: `python -m services.plugin.generate [FOLDER]`.

Needs grpcio-tools. The include root is the repository, so that the generated modules import each other by
their true path; a test generates into another folder and compares.
"""

import sys
from pathlib import Path

API = Path("services/plugin/api")


def generate(root: Path, out: Path) -> list[Path]:
    """Generate from the .proto files below `root` into `out`, below the same path; return what was written.

    Raises RuntimeError when the compiler refuses a file; its words are on stderr.
    """
    from grpc_tools import protoc  # a tool of the build: no process of the driver has it

    protos = sorted(str(path.relative_to(root)) for path in (root / API).glob("*.proto"))
    # grpcio-tools brings the well-known types in a folder of its own; ours use none
    outputs = [f"--{plugin}_out={out}" for plugin in ("python", "pyi", "grpc_python")]
    code = protoc.main(["protoc", f"-I{root}", *outputs, *protos])
    if code:
        raise RuntimeError(f"protoc ended with {code}")
    return sorted((out / API).glob("*_pb2*.py*"))


if __name__ == "__main__":
    repository = Path(__file__).resolve().parents[2]
    for written in generate(repository, Path(sys.argv[1]) if sys.argv[1:] else repository):
        print(written)

"""The kubelet's gRPC interfaces: our own .proto files and the code generated from them (generate.py)."""

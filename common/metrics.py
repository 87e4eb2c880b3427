"""The metrics every process serves, in Prometheus' conventions, prefix liken_."""

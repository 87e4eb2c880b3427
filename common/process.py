"""What every process is: signals, health, one listener for metrics and probes, one clean end."""

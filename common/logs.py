"""Log lines: text for people, JSON for programs. Standard library logging underneath."""

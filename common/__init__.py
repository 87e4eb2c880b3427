"""What liken's processes share. Nothing here knows any service."""

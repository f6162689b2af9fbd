"""What a scan is written as: bytes to facts, and back."""

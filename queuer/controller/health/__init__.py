"""What the controller shows of itself."""

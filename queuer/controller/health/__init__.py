"""The controller's figures and probes about itself."""

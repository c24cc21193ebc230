"""A discrete-event simulator in virtual time over the same `decide()` that the controller uses."""

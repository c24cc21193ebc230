"""What every request passes, and the forms of bodies, lists and failures."""

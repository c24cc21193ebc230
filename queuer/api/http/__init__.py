"""The checks of every request, and the forms of bodies, lists and failures."""

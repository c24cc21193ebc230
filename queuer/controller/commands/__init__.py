"""Commands on single workloads: taken up from the database, carried out, answered."""

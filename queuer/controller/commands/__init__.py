"""What people ask of single workloads: taken up from the database, carried out, answered."""

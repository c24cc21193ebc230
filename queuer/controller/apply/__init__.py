"""What was committed is sent to the API server, one PATCH a job."""

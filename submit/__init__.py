"""Job submission from files: OpenCue's spec XML to the JSON form, and the call of maestro.submit_job."""

"""The demo: three stock RQDs on this machine render pictures."""

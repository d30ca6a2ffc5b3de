"""Reads job specifications (OpenCue XML or JSON) and submits them."""

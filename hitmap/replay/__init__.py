"""Plays a recorded capture through the ports a live server would use. It speaks only the wire."""

"""The whole path from a server to its report: on the live reference engine (live.py) or a recording (recorded.py)."""

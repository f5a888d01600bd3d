"""What a change looks like, and what to do about it: rules as data (`rules/`) over named facts."""

from analysis.diagnosis.diagnose import diagnose

__all__ = ["diagnose"]

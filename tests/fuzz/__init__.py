"""Random programs, run compiled against eager."""

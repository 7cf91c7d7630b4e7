"""What every call has in common: identity, deadlines, records, errors."""

"""Who may call, and how much: keys, TLS, permits, text budgets."""

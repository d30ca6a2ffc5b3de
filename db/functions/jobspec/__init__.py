"""Job specifications: frame ranges, defaults and checks. Pure; runs in the database and in the launcher."""

"""The commands: thin, each calls one of the other packages."""

"""Job specifications: reading, defaults, checks, frames and depends; command tokens. Pure, no database.

`parse` and `normalise` turn the JSON form into rows, `needs` says what of the farm they ask for, `tokens.substitute`
makes a frame's command. Runs in the database and in the launcher.
"""

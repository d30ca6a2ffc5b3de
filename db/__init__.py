"""The database side: private cluster, connection, installation, schedule. SQL lives in the folders below."""

"""The launcher daemon: sends launches to RQD and takes its reports."""

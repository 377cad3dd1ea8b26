"""The daemon on an instance: threads and processes around ``spindown.job``."""

"""The daemon on the instance, around the use cases in spindown.app."""

"""``spindown demo``: the main job on this machine, from a message to the bill."""

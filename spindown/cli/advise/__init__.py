"""``spindown advise``: the settings that would have cost least, and when not to use Spindown."""

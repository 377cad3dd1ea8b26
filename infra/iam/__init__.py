"""What each role may do: one named statement for each reason to call AWS.

Everything that a role of ours may ever do is written in this package, so that it can be read, and
tested, in one place. A statement's id says why it is there.
"""

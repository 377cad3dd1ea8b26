"""What each role may do: one named statement for each reason to call AWS.

Every permission of every role of ours is written in this package, so that it can be read, and
tested, in one place. The id of a statement says why the statement is there.
"""

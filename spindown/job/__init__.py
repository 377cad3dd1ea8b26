"""What is done with jobs: claim, commit, release; submit, results, cancel, redrive, resend.

A job is one message with its manifest. The manifest is the fence: a claim raises its epoch, and
only who holds the epoch can commit. The lease row says until when nobody else may claim the job.
"""

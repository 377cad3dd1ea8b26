"""What a worker does with a job, as use cases over ports.

The order that loses nothing and commits nothing twice::

    receive -> claim (manifest, then lease row) -> compute -> commit (files, part, manifest)
            -> complete (manifest, message, lease row)
             | release  (manifest, lease row, visibility 0)
             | fail     (manifest, then as release, or the dead-letter queue)

Only the manifest's conditional write decides who owns a job. The lease row says how long
nobody else may try, and the message's visibility follows the lease.
"""

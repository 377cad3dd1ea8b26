"""How well the machine is used: read every few seconds, told of each job, kept in S3."""

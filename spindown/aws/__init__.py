"""The ports over AWS: the only part of Spindown that talks to boto3."""

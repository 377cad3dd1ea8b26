"""The CDK app that deploys Spindown."""

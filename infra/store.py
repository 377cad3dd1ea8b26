"""The bucket: manifests, results, checkpoints, usage, decisions and the catalogue of offers."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_s3 as s3
from constructs import Construct

#: Where Athena writes what saved queries answer.
ANSWERS = "athena/"


class Store(Construct):
    """One private, versioned bucket; it stays when the stack is destroyed.

    Versions are there for the manifest: a truncated one falls back to the one before it. Every
    commit makes a version, so they expire.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            versioned=True,
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            removal_policy=RemovalPolicy.RETAIN,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="expire-old-versions",
                    noncurrent_version_expiration=Duration.days(30),
                    expired_object_delete_marker=True,
                ),
                s3.LifecycleRule(
                    id="abort-torn-uploads",
                    abort_incomplete_multipart_upload_after=Duration.days(7),
                ),
                s3.LifecycleRule(
                    id="expire-decisions", prefix="decisions/", expiration=Duration.days(90)
                ),
                # What Athena answers can be asked again.
                s3.LifecycleRule(id="expire-answers", prefix=ANSWERS, expiration=Duration.days(7)),
            ],
        )

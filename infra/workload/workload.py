"""One workload: its queue, its code, its fleet, and its settings as deployed."""

from pathlib import Path

from aws_cdk import Duration
from constructs import Construct

from infra.ground import Ground
from infra.workload.code import CodeArchive
from infra.workload.fleet import Fleet
from infra.workload.queue import JobQueue
from spindown.config import WorkloadConfig
from spindown.contract.job.manifest import STATES
from spindown.contract.location import work_root
from spindown.contract.settings import Outpost, RunSettings, WorkloadSettings

#: Far longer than ``RENEW_STATE_AFTER`` (contract.job.manifest), by which jobs keep theirs.
STATE_KEPT_FOR = Duration.days(30)


class Workload(Construct):
    """What a ``[workload.NAME]`` of spindown.toml becomes."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        config: WorkloadConfig,
        root: Path,
        ground: Ground,
    ) -> None:
        """Describe ``config``; ``root`` is where its relative paths begin (ConfigError)."""
        super().__init__(scope, construct_id)
        self.name = name
        self.config = config
        self._ground = ground
        self.jobs = JobQueue(self, "Jobs", deployment=ground.deployment.name, workload=name)
        # What commits no longer list is not told from what they do, which is written anew in time.
        ground.store.bucket.add_lifecycle_rule(
            id=f"expire-state-{name}",
            prefix=f"{work_root(name)}{STATES}",
            expiration=STATE_KEPT_FOR,
        )
        self.archive = CodeArchive(
            self, "Code", root=root, name=name, workload=config, assets=ground.assets
        )
        self.fleet = Fleet(
            self,
            "Fleet",
            name=name,
            workload=config,
            jobs=self.jobs,
            archive=self.archive,
            ground=ground,
        )

    @property
    def settings(self) -> WorkloadSettings:
        """Return what those need to know who work with it."""
        outpost = Outpost(subnets=self._ground.network.subnets, templates=self.fleet.template_refs)
        return WorkloadSettings(
            name=self.name,
            queue_url=self.jobs.queue.queue_url,
            dlq_url=self.jobs.dead_letters.queue_url,
            log_group=self.fleet.log_group.log_group_name,
            outposts={self._ground.deployment.region: outpost},
            regions=tuple(sorted(self._ground.deployment.outpost)),
            run=RunSettings(
                slots=str(self.config.run.slots),
                code=self.archive.uri,
                code_digest=self.archive.digest,
                root_volume_gib=self.config.image.root_volume_gib,
            ),
            requirements=self.config.to_requirements(),
            policy=self.config.to_policy(),
        )

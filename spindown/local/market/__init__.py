"""A strict fake of what Spindown needs of EC2, Pricing and Service Quotas, on the real wire.

`LocalMarket` plays the EC2 model in real time, `MarketApp` speaks EC2 and the two price services,
`MetadataApp` is the instance metadata service, `load_scenario` reads what is to happen.
"""

from spindown.local.market.app import MarketApp, service_of
from spindown.local.market.market import EmitEvent, InstanceDriver, LocalMarket
from spindown.local.market.metadata import MetadataApp, RoleCredentials
from spindown.local.market.scenario import Scenario, ScenarioError, digest_of, load_scenario
from spindown.local.market.wire.upstream import DeployedNetwork, UpstreamNetwork

__all__ = [
    "DeployedNetwork",
    "EmitEvent",
    "InstanceDriver",
    "LocalMarket",
    "MarketApp",
    "MetadataApp",
    "RoleCredentials",
    "Scenario",
    "ScenarioError",
    "UpstreamNetwork",
    "digest_of",
    "load_scenario",
    "service_of",
]

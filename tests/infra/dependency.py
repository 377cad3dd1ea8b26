"""What a resource of a template is made after, and deleted before."""

from collections.abc import Iterator

from tests.infra.assembly import Assembly


def depends_on(assembly: Assembly, name: str) -> set[str]:
    """Return what a resource is made after, and deleted before, directly or not."""
    seen: set[str] = set()
    rest = [name]
    while rest:
        one = assembly.resources[rest.pop()]
        found = {*referred(one.get("Properties", {})), *one.get("DependsOn", [])} - seen
        seen |= found
        rest += found
    return seen & set(assembly.resources)


def referred(value: object) -> Iterator[str]:
    match value:
        case {"Ref": str(name)} if not name.startswith("AWS::"):
            yield name
        case {"Fn::GetAtt": [str(name), _]}:
            yield name
        case dict():
            for part in value.values():
                yield from referred(part)
        case list():
            for part in value:
                yield from referred(part)


def of_type(assembly: Assembly, *kinds: str) -> set[str]:
    return {name for name, one in assembly.resources.items() if one["Type"] in kinds}

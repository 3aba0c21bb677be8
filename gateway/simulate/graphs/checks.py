"""Problems between the sections of a file of graphs: names that do not exist, and values that contradict others."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping

from gateway.config.explain import Key
from gateway.simulate.graphs.model import (
    FOR_MAX_S,
    TICKS_MAX,
    FailureSection,
    GraphSection,
    GraphsFile,
    VmSection,
    WindowSection,
)

_ROUNDING = 1e-9
Problems = Iterator[tuple[Key, str]]


def problems(file: GraphsFile) -> Problems:
    """Yield the key and the text of each problem."""
    yield from _of_time(file)
    owners: dict[str, str] = {}
    for centre_name, centre in file.datacentres.items():
        for host in centre.hosts:
            if host in owners:
                text = f"{owners[host]} has a host of this name, too; rename one"
                yield ("datacentres", centre_name, "hosts", host), text
            owners[host] = centre_name
    for name, graph in file.graphs.items():
        yield from _of_graph(name, graph, file.vms)
    for name, vm in file.vms.items():
        yield from _of_vm(name, vm, file)
    for at, failure in enumerate(file.failures):
        yield from _of_failure(("failures", at), failure, file, owners)


def _of_time(file: GraphsFile) -> Problems:
    if file.for_s > FOR_MAX_S:
        yield ("for",), f"is longer than {FOR_MAX_S / 3600:g}h; simulate a part of it"
    if file.for_s / file.tick_s > TICKS_MAX:
        yield ("tick",), f"{file.for_s:g} s are more than {TICKS_MAX:,} of these ticks; use longer ticks"
    if file.measure_from_s >= file.for_s:
        yield ("measure_from",), f"nothing is measured, since the simulation ends at {file.for_s:g} s; begin earlier"


def _of_graph(name: str, graph: GraphSection, vms: Collection[str]) -> Problems:
    top: Key = ("graphs", name)
    kinds: dict[str, str] = {}
    if graph.vm is not None and graph.vm not in vms:
        yield (*top, "vm"), _unknown("VM", graph.vm, vms)
    for (kind, vertex), section in graph.vertices:
        if vertex in kinds:
            yield (*top, kind, vertex), f"{kinds[vertex]} have one of this name, too; rename one"
        kinds[vertex] = kind
        if section.vm is not None and section.vm not in vms:
            yield (*top, kind, vertex, "vm"), _unknown("VM", section.vm, vms)
        if isinstance(section, WindowSection):
            yield from _of_window((*top, kind, vertex), section)
    for at, edge in enumerate(graph.edges):
        for key, end in (("from", edge.origin), ("to", edge.target)):
            if end not in kinds:
                yield (*top, "edges", at, key), _unknown("vertex", end, kinds)


def _of_window(key: Key, window: WindowSection) -> Problems:
    advance_s = window.advance_s or window.size_s
    steps = window.size_s / advance_s
    if steps < 1 - _ROUNDING or abs(steps - round(steps)) > _ROUNDING:
        yield (*key, "advance"), f"the size, {window.size_s:g} s, is not a multiple of it; change one of them"
    if (window.results is None) is (window.results_per_event is None):
        yield key, "give results (events for each window), or results_per_event, and not both"


def _of_vm(name: str, vm: VmSection, file: GraphsFile) -> Problems:
    centre = file.datacentres.get(vm.datacentre)
    if centre is None:
        yield ("vms", name, "datacentre"), _unknown("data centre", vm.datacentre, file.datacentres)
        return
    if vm.host is not None and vm.host not in centre.hosts:
        yield ("vms", name, "host"), _unknown(f"host of {vm.datacentre}", vm.host, centre.hosts)
    if vm.usd_per_hour > 0 and centre.billing is None:
        yield ("vms", name, "usd_per_hour"), f"has no period: add billing: {{period: 1h}} to {vm.datacentre}"
    if vm.ends_s is not None and vm.ends_s <= vm.ordered_s:
        yield ("vms", name, "ends"), "is not after ordered; make it later"


def _of_failure(key: Key, failure: FailureSection, file: GraphsFile, hosts: Mapping[str, str]) -> Problems:
    if (failure.vm is None) is (failure.host is None):
        yield key, "give a vm or a host, and not both"
    if (failure.at_s is None) is (failure.every_s is None):
        yield key, "give at (once), or every (the mean time between failures), and not both"
    if failure.vm is not None and failure.vm not in file.vms:
        yield (*key, "vm"), _unknown("VM", failure.vm, file.vms)
    if failure.host is not None and failure.host not in hosts:
        yield (*key, "host"), _unknown("host", failure.host, hosts)


def _unknown(kind: str, name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f' (did you mean "{near[0]}"?)' if near else ""
    return f'there is no {kind} "{name}"{hint}; there are {", ".join(known)}'

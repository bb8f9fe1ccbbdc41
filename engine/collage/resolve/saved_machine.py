"""A machine, as the store keeps it: what targets and keys of measurements are made of."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from collage.store import TuningStore
from collage_core.contract import Host
from collage_core.errors import UsageError, did_you_mean


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SavedMachine:
    """A machine on which models were optimized, under its fingerprint with those of its devices.

    Attributes:
        host: The machine.
    """

    KIND: ClassVar[str] = "machine"
    VERSION: ClassVar[int] = 1

    host: Host


def machine_name(host: Host) -> str:
    """Return under what a machine is kept: other devices, or other drivers of them, make it another."""
    return host.fingerprint_for(*(device.name for device in host.devices))


def note_machine(store: TuningStore, host: Host) -> None:
    """Keep a machine as it is now; what is kept already is not written again."""
    name, machine = machine_name(host), SavedMachine(host=host)
    if store.get_document(SavedMachine, name) != machine:
        store.put_document(name, machine)


def machines(store: TuningStore) -> tuple[str, ...]:
    """Return the names of the machines that a store knows, sorted."""
    return tuple(name for _, name in store.document_keys(SavedMachine.KIND))


def machine_named(store: TuningStore, text: str | None) -> Host:
    """Return the machine that a user means.

    Args:
        store: Knows machines.
        text: A name, or a part of one that only one machine has; None if there is one machine only.

    Raises:
        UsageError: If there is none, or more than one.
    """
    known = machines(store)
    if not known:
        raise UsageError(f"{store.url} knows no machine: no model was optimized with it since machines are noted")
    meant = [name for name in known if text is None or name == text] or [
        name for name in known if text and text in name
    ]
    if not meant:
        raise UsageError(f"{store.url} knows no machine {text!r}{did_you_mean(text or '', known)}: {_listed(known)}")
    if len(meant) > 1:
        raise UsageError(f"say which machine with --host: {_listed(meant)}")
    found = store.get_document(SavedMachine, meant[0])
    if found is None:
        raise UsageError(f"another version of Collage noted the machine {meant[0]!r}: optimize a model there again")
    return found.host


def _listed(names: list[str] | tuple[str, ...]) -> str:
    return "; ".join(map(repr, names))

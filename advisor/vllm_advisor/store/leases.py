"""One tuner a node: a lease that expires by itself, so that a killed tuner blocks nobody for long."""

from __future__ import annotations

from sqlalchemy import update
from sqlmodel import col

from vllm_advisor.profile import Lease
from vllm_advisor.store import owner
from vllm_advisor.store.session import Sessions
from vllm_advisor.store.tables import NodeRow


class Leases(Sessions):
    """Who tunes where. `seconds` is how long a lease holds without a heartbeat."""

    def acquire(self, node: str, by: str | None = None, *, seconds: float = 60.0) -> bool:
        """Take the node's lease, if it is free, expired, one's own, or its holder's process is gone."""
        signed = by or owner.me()
        with self._write() as session:
            row = session.get(NodeRow, node, with_for_update=True) or NodeRow(name=node)
            held = row.lease_owner not in ("", signed) and row.lease_expires > self.now()
            if held and owner.alive(row.lease_owner):
                return False
            row.lease_owner, row.lease_expires = signed, self.now() + seconds
            session.add(row)
        return True

    def heartbeat(self, node: str, by: str | None = None, *, seconds: float = 60.0) -> bool:
        """Hold on to the lease; False where somebody else has it now, and the holder must stop."""
        return self._set(node, by or owner.me(), owner_after=by or owner.me(), expires=self.now() + seconds)

    def release(self, node: str, by: str | None = None) -> bool:
        """Give the lease back; False where it was lost before."""
        return self._set(node, by or owner.me(), owner_after="", expires=0.0)

    def _set(self, node: str, held_by: str, *, owner_after: str, expires: float) -> bool:
        own = (col(NodeRow.name) == node, col(NodeRow.lease_owner) == held_by)
        with self._write() as session:
            changed = update(NodeRow).where(*own).values(lease_owner=owner_after, lease_expires=expires)
            return bool(session.exec(changed).rowcount)

    def holder(self, node: str) -> Lease | None:
        """Who has the lease now; None: nobody, or a process of this host that is gone."""
        with self._read() as session:
            row = session.get(NodeRow, node)
            if row is None or row.lease_expires <= self.now() or not owner.alive(row.lease_owner):
                return None
            return Lease(node, row.lease_owner, row.lease_expires)

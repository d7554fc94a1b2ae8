"""What an audit of a FLARE job needs to know, where its owner looks for it."""

from __future__ import annotations

from scapegoat.integrations.shared.material import AuditMaterial

__all__ = ["AuditMaterial"]

"""Texas100: hospital stays by procedure (Shokri et al., 2017)."""

from __future__ import annotations

from typing import ClassVar

from scapegoat.data.base import register
from scapegoat.data.files.locate import FileLayout, Publication
from scapegoat.data.records import PublishedRecords


@register("texas100")
class Texas100(PublishedRecords):
    """67,330 stays, 6,169 binary attributes (6,170 in the paper that introduced them), 100 procedures."""

    publication: ClassVar[Publication] = Publication(
        home="https://github.com/privacytrustlab/datasets (dataset_texas.tgz)",
        layouts=(
            FileLayout("NumPy archive", {"npz": ("texas100.npz",)}),
            FileLayout("tgz of feats and labels", {"archive": ("dataset_texas.tgz", "texas100.tgz")}),
            FileLayout(
                "feats and labels",
                {
                    "feats": ("feats", "texas/100/feats", "100/feats"),
                    "labels": ("labels", "texas/100/labels", "100/labels"),
                },
            ),
        ),
        records=67_330,
        shapes=((6169,), (6170,)),
        classes=100,
    )

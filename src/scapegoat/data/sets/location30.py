"""Location30: check-ins of Foursquare users in Bangkok by type of user (Shokri et al., 2017)."""

from __future__ import annotations

from typing import ClassVar

from scapegoat.data.base import register
from scapegoat.data.files.locate import Download, FileLayout, Publication
from scapegoat.data.records import PublishedRecords

_SHA256 = "927203f85a868f8ee17a0ded1dc61699efe602167beabe34fbf45b4b1de94b33"


@register("location30")
class Location30(PublishedRecords):
    """5,010 users, 446 places or types of places visited or not, 30 classes."""

    one_file: ClassVar[str | None] = "bangkok"
    publication: ClassVar[Publication] = Publication(
        home="https://github.com/privacytrustlab/datasets (dataset_location.tgz)",
        layouts=(
            FileLayout("tgz of one CSV", {"archive": ("dataset_location.tgz", "location30.tgz")}),
            FileLayout("CSV", {"records": ("bangkok", "bangkok.csv", "location30.csv", "dataset_location.csv")}),
            FileLayout("NumPy archive", {"npz": ("location30.npz",)}),
        ),
        records=5_010,
        shapes=((446,),),
        classes=30,
        content="2eec427c8508b0ef7da0034b1cfcbba63dce43cf01d1ec1c2575243af3cb78f8",
        download=Download(
            url="https://raw.githubusercontent.com/privacytrustlab/datasets/master/dataset_location.tgz",
            file="dataset_location.tgz",
            size=287_293,
            sha256=_SHA256,
        ),
    )

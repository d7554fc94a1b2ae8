"""Purchase100: shopping histories by style of shopper (Shokri et al., 2017)."""

from __future__ import annotations

from typing import ClassVar

from scapegoat.data.base import register
from scapegoat.data.files.locate import FileLayout, Publication
from scapegoat.data.records import PublishedRecords


@register("purchase100")
class Purchase100(PublishedRecords):
    """197,324 shoppers, 600 products bought or not, 100 classes."""

    one_file: ClassVar[str | None] = "dataset_purchase"
    publication: ClassVar[Publication] = Publication(
        home="https://github.com/privacytrustlab/datasets (dataset_purchase.tgz)",
        layouts=(
            FileLayout("NumPy archive", {"npz": ("purchase100.npz",)}),
            FileLayout("tgz of one CSV", {"archive": ("dataset_purchase.tgz", "purchase100.tgz")}),
            FileLayout("CSV", {"records": ("dataset_purchase", "dataset_purchase.csv", "purchase100.csv")}),
        ),
        records=197_324,
        shapes=((600,),),
        classes=100,
    )

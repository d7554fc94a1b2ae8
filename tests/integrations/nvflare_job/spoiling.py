"""A filter on results that goes wrong in rounds of our choice: a site that does what it should not."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from nvflare.apis.dxo import DataKind
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.app_common.app_constant import AppConstants


class Spoiling(DXOFilter):
    """`wrong` says for a site what it does in each round, from the first: send nan, shapes, hundredfold or nothing, or
    hang, which a file in `marks` tells."""

    def __init__(self, wrong: dict[str, list[str]], marks: str) -> None:
        super().__init__([DataKind.WEIGHT_DIFF], [DataKind.WEIGHT_DIFF])
        self.wrong, self.marks = wrong, marks

    def process_dxo(self, dxo, shareable, fl_ctx):
        site = fl_ctx.get_identity_name()
        rounds = self.wrong.get(site, [])
        number = shareable.get_header(AppConstants.CURRENT_ROUND)
        if number >= len(rounds) or rounds[number] == "well":
            return None
        if rounds[number] == "hang":
            Path(self.marks, site).touch()
            time.sleep(3600)
        dxo.data = {
            "nan": {name: np.full_like(value, np.nan) for name, value in dxo.data.items()},
            "shapes": {name: np.zeros(3, dtype=np.float32) for name in dxo.data},
            "hundredfold": {name: 100 * value for name, value in dxo.data.items()},
            "nothing": {},
        }[rounds[number]]
        return dxo

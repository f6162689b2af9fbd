"""Names for the arrays that columns are made of.

Only for type checkers: numpy takes longer to load than a scan, and most modules that name these
types need it only when there are leaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray

Addresses: TypeAlias = "NDArray[np.uint64]"
Indexes: TypeAlias = "NDArray[np.int64]"
Flags: TypeAlias = "NDArray[np.bool_]"

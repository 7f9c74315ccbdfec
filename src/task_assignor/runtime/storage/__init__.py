"""Where all files of topics and runs are: objects under names, whole or not there at all; no meaning of their own.

`base` says what a storage promises, `local` and `objects` keep it on a file system and in object stores, `addresses` finds
the one that a path or URL means, `content` knows what is in an object and whether it is still what was written. `background` writes while the work goes on.
"""

from __future__ import annotations

from task_assignor.runtime.machines.records import Seal
from task_assignor.runtime.storage.addresses import address_of, local_path, storage_at
from task_assignor.runtime.storage.background import BackgroundWriter
from task_assignor.runtime.storage.base import Data, Storage
from task_assignor.runtime.storage.content import (
    PARQUET,
    DamagedDocumentError,
    as_arrow,
    as_document,
    as_one_file,
    as_parquet,
    check_sealed,
    check_size,
    corrupt,
    not_in_parquet,
    open_arrow,
    open_document,
    open_sealed,
    read_document,
    seal_of,
)
from task_assignor.runtime.storage.local import LocalStorage

__all__ = [
    "PARQUET",
    "BackgroundWriter",
    "DamagedDocumentError",
    "Data",
    "LocalStorage",
    "Seal",
    "Storage",
    "address_of",
    "as_arrow",
    "as_document",
    "as_one_file",
    "as_parquet",
    "check_sealed",
    "check_size",
    "corrupt",
    "local_path",
    "not_in_parquet",
    "open_arrow",
    "open_document",
    "open_sealed",
    "read_document",
    "seal_of",
    "storage_at",
]

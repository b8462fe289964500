"""The dask engine: records stay in the memory of workers, points go to them, sums come back.

A part of the records lives in a task that dask can run again from its source, so that a worker may be lost at any
moment: its parts are read again elsewhere, and the sums are the same. Of exact sums that holds to the last bit, however
the records are divided.
"""

from epsteps.data.engines.cluster.connection import connect
from epsteps.data.engines.cluster.engine import ClusterEngine, ClusterSums
from epsteps.data.engines.cluster.parts import PartitionError
from epsteps.data.engines.cluster.records import ClusterRecords, open_records

__all__ = ["ClusterEngine", "ClusterRecords", "ClusterSums", "PartitionError", "connect", "open_records"]

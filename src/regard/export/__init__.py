"""A model for other runtimes, checked on real sentences before it is said to be there."""

from regard.export.exporting import Runtime as Runtime
from regard.export.exporting import export as export

"""Exports to other runtimes, verified on real sentences before they are put in place."""

from regard.export.exporting import Runtime as Runtime
from regard.export.exporting import export as export

"""What users declare and write: topologies, sub-topologies, processors, and what these see. Nothing runs here."""

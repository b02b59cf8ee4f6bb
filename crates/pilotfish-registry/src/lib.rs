//! Service registries as state machines, and the aggregate that merges them.

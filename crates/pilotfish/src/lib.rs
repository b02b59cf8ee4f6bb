//! The Pilotfish binary: settings, wiring, tasks, shutdown.

//! Test helpers: in-process control plane, ADS client, real-server helpers, fixtures.

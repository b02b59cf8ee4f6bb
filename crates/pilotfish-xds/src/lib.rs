//! xDS protocol state, subscriptions, fan-out and the ADS server.
